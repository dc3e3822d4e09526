// The parts of a run's page: its head, its islands, who reaches whom, warnings and events, what can be done. From documents to elements.
import { command, el, shellWord } from './dom.js';
import { bits, bytes, clock, count, duration, hasEnded, health, known, loss, marks, money, percent, plural, roundsDone, shareOfRun, timeLeft } from './text.js';

const fact = (name, value, more) => el('div', { class: 'fact' }, el('dt', {}, name), el('dd', {}, value, more && el('small', {}, more)));

// Those of a run of phases; of a run of rounds there are none.
const tasksOf = (document) => document.phases.flatMap((phase) => phase.tasks.map((task) => ({ ...task, phase: phase.name })));
const shareDone = (task) => (task.state === 'done' ? 1 : task.steps ? Math.min(1, task.step / task.steps) : 0);

function left(run, rows, now, phased) {
  if (hasEnded(run.state)) return fact('took', duration((run.ended_unix_ms - (run.started_unix_ms ?? run.created_unix_ms)) / 1000), `until ${clock(run.ended_unix_ms)}`);
  const time = timeLeft(run, rows, now);
  return time ? fact('time left', duration(time.seconds), `until ${clock(now + time.seconds * 1000)}, at the speed of the last ${time.rounds} rounds`)
    : fact('since', clock(run.started_unix_ms ?? run.created_unix_ms), run.state === 'running' && !phased ? 'time left is known after three rounds' : null);
}

// How much of the data all islands together have trained on.
function trainedOn(run) {
  if (!run.data_passes) return null;
  return fact('data trained on', run.data_passes < 1 ? `${(100 * run.data_passes).toPrecision(3)} %` : `${run.data_passes.toFixed(2)} passes`);
}

export function head(document, rows, price) {
  const { run } = document;
  const now = document.now_unix_ms;
  const { mark, word, stands } = health(run, now);
  const tasks = tasksOf(document);
  const phased = tasks.length > 0;
  const part = phased ? tasks.reduce((sum, task) => sum + shareDone(task), 0) / tasks.length : shareOfRun(run);
  const done = phased ? `${tasks.filter((task) => task.state === 'done').length} of ${plural(tasks.length, 'task', 'tasks')} done`
    : `round ${roundsDone(run)}`;
  const unit = run.images ? 'images' : 'tokens';
  return [
    el('h1', {}, run.name),
    el('p', { class: 'state' }, el('span', { class: `mark ${mark}` }, `${marks[mark]} ${word}`),
      run.reason ? `: ${run.reason}` : '', stands > 60 ? el('span', { class: 'quiet' }, `, for ${duration(stands)}`) : null),
    el('div', { class: 'bar', role: 'progressbar', 'aria-valuenow': Math.round(part * 100), 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-label': phased ? 'Tasks done' : 'Rounds done' },
      el('div', { style: { width: `${(part * 100).toFixed(2)}%` } })),
    el('p', { class: 'quiet under' }, `${done} · ${run.strategy} · ${run.id}`),
    run.unsteady?.length ? el('ul', { class: 'unsteady', 'aria-label': 'Paths that come and go' }, run.unsteady.map((path) => el('li', {}, path.text))) : null,
    el('dl', { class: 'facts' },
      left(run, rows, now, phased),
      phased ? null : fact('loss', loss(run.outer_loss), known(run.initial_loss) ? `${loss(run.initial_loss)} at the start` : null),
      phased && run.state !== 'running' ? null
        : fact(`${unit} a second`, run.state === 'running' ? count(run.tokens_per_second) : '–', phased ? null : `${count(run.tokens)} in all`),
      fact('time computing', percent(run.compute_seconds, run.wait_seconds), `${duration(run.wait_seconds)} waited`),
      fact('sent', bytes(run.bytes_sent), known(price) ? `costs ${money(run.bytes_sent, price)}` : known(run.bytes_per_round) && !phased ? `${bytes(run.bytes_per_round)} a round` : null),
      run.ended_unix_ms ? fact('islands', `${document.islands.length}`, 'took part')
        : fact('islands', `${run.members}`, run.min === run.max ? `of ${run.max}` : `from ${run.min} to ${run.max}`),
      trainedOn(run)),
  ];
}

const about = {
  island_joined: ['▽', 'an island joined'],
  island_left: ['△', 'an island left'],
  island_lost: ['✖', 'an island was lost', true],
  island_quarantined: ['⊘', 'quarantine', true],
  run_paused: ['‖', 'paused'],
  run_resumed: ['▷', 'resumed'],
  run_interrupted: ['✖', 'interrupted', true],
  contribution_rejected: ['⊘', 'contribution rejected', true],
  result_disputed: ['⊘', 'results differ', true],
  rolled_back: ['↶', 'rounds lost', true],
};

// The events that stand on the curve.
export function marksOf(events) {
  return events.filter((event) => about[event.kind]).slice(-200)
    .map((event) => ({ ms: event.time_unix_ms, sign: about[event.kind][0], what: about[event.kind][1], bad: about[event.kind][2], text: event.text }));
}

// How long the others waited for each island: for it to be ready, or for what it sent.
export function waitedFor(islands) {
  const seconds = new Map();
  for (const island of islands) {
    for (const wait of island.waits) {
      const whom = wait.what === 'ready' ? wait.island : wait.what === 'link' ? wait.from : null;
      if (whom && whom !== island.name) {
        const sum = seconds.get(whom) ?? { ready: 0, link: 0 };
        sum[wait.what] += wait.seconds;
        seconds.set(whom, sum);
      }
    }
  }
  return seconds;
}

const total = (wait) => (wait ? wait.ready + wait.link : 0);
const kMostCards = 60;

export function cards(document) {
  const waits = waitedFor(document.islands);
  const sorted = [...document.islands].sort((a, b) => total(waits.get(b.name)) - total(waits.get(a.name)) || b.active - a.active);
  const card = (island) => {
    const wait = total(waits.get(island.name));
    const row = (name, value) => (value === '–' ? null : [el('dt', {}, name), el('dd', {}, value)]);
    return el('li', { class: island.active ? 'card' : 'card off' },
      el('h3', {}, el('a', { href: `/i/${encodeURIComponent(island.name)}`, 'data-key': `island ${island.id}` }, island.name), ' ', el('span', { class: 'badge' }, island.state)),
      island.reason ? el('p', { class: 'why' }, island.reason) : null,
      wait > 0.5 ? el('p', { class: 'waited' }, `${marks.waits} others waited ${duration(wait)} for it`) : null,
      el('dl', {}, row('tokens/s', count(island.tokens_per_second)), row('computing', percent(island.compute_seconds, island.wait_seconds)),
        row('step', island.step ? count(island.step) : '–'), row('training loss', island.step ? loss(island.training_loss) : '–'), row('sent', bytes(island.bytes_sent)),
        row('received', bytes(island.bytes_received)), row('memory', island.trainer_memory_bytes ? bytes(island.trainer_memory_bytes) : '–')));
  };
  const more = sorted.length - kMostCards;
  return [el('ul', { class: 'cards' }, sorted.slice(0, kMostCards).map(card)), more > 0 ? el('p', { class: 'quiet' }, `and ${plural(more, 'island', 'islands')} for which nobody waits longer`) : null];
}

export const kMostInMatrix = 24;

// Who sent to whom, and how fast: what exchanges brought, over the time from their beginning to the last piece. Where no exchange has shown
// it, what was measured of the path, or whether data passed when the islands tried: `paths` has what each got from each. How far it is
// stands beside it where an operator had it measured. A path that comes and goes (`unsteady`) says how much of the time it is there.
export function matrix(links, paths, unsteady = []) {
  const names = [...new Set([...links, ...paths].flatMap((link) => [link.from, link.to]))].sort();
  if (names.length < 2 || names.length > kMostInMatrix) return null;
  const tried = new Map(paths.map((path) => [`${path.from}\n${path.to}`, path]));
  const rate = new Map(links.filter((link) => link.seconds > 0).map((link) => [`${link.from}\n${link.to}`, (link.bytes * 8) / link.seconds]));
  const most = Math.max(...rate.values());
  const cell = (from, to) => {
    if (from === to) return el('td', { class: 'none' }, '');
    const value = rate.get(`${from}\n${to}`);
    const path = tried.get(`${from}\n${to}`);
    const shaky = unsteady.find((one) => one.from === from && one.to === to);
    if (shaky) return el('td', { class: 'oneway', title: shaky.text }, known(shaky.there_share) ? `comes and goes: there ${Math.round(100 * shaky.there_share)} %` : 'comes and goes');
    if (path && !path.passes) return el('td', { class: 'oneway', title: path.why }, 'does not pass');
    const measured = path?.measured;
    const far = measured?.round_trip_ms ? el('small', {}, ` ${measured.round_trip_ms.toFixed(measured.round_trip_ms < 10 ? 1 : 0)} ms`) : null;
    if (value === undefined && path) return el('td', { class: 'reached', style: { '--part': '10%' } }, measured?.bits_per_second ? bits(measured.bits_per_second) : 'passes', far);
    const oneWay = value === undefined && rate.has(`${to}\n${from}`);
    return value === undefined ? el('td', { class: oneWay ? 'oneway' : 'never' }, oneWay ? 'one way' : '–')
      : el('td', { class: 'reached', style: { '--part': `${Math.round(20 + (60 * value) / most)}%` } }, bits(value), far);
  };
  const unmeasured = paths.some((path) => path.passes && !path.measured);
  return [el('div', { class: 'scroll' }, el('table', { class: 'matrix' },
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'from ↓ to →'), names.map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, names.map((from) => el('tr', {}, el('th', { scope: 'row' }, from), names.map((to) => cell(from, to))))))),
  unmeasured ? el('ul', { class: 'commands' }, command('atoll doctor --probe 2s', 'measures the rate and the round trip of each path')) : null];
}

// The same words are one line with their number, the newest first.
export function warnings(list) {
  const folded = new Map();
  for (const warning of list) {
    const key = `${warning.kind}\n${warning.island}\n${warning.text.replace(/[\d.]+/g, '#')}`;
    const before = folded.get(key);
    folded.delete(key);
    folded.set(key, { ...warning, times: (before?.times ?? 0) + 1 });
  }
  return [...folded.values()].reverse().map((warning) => el('li', {}, el('time', {}, clock(warning.time_unix_ms)), ' ',
    el('span', {}, warning.text, warning.island && !warning.text.includes(warning.island) ? ` (${warning.island})` : '', warning.times > 1 ? el('b', {}, ` × ${warning.times}`) : null)));
}

export function eventLines(events, filter) {
  const word = filter.trim().toLowerCase();
  const fits = (event) => !word || `${event.text} ${event.kind} ${event.island ?? ''} ${event.level}`.toLowerCase().includes(word);
  return events.filter(fits).slice(-200).reverse().map((event) => el('li', { class: event.level },
    el('time', {}, new Date(event.time_unix_ms).toLocaleTimeString([], { hour12: false })), ' ', el('span', {}, event.text)));
}

export function phases(document) {
  const tasks = tasksOf(document);
  if (tasks.length === 0) return null;
  return el('div', { class: 'scroll' }, el('table', { class: 'list' },
    el('thead', {}, el('tr', {}, ['task', 'state', 'island', 'step', 'loss', 'copies'].map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, tasks.map((task) => el('tr', {}, el('td', {}, task.task), el('td', {}, task.state),
      el('td', {}, task.group ? task.group.islands.join(', ') : (task.island ?? '')), el('td', {}, task.steps ? `${count(task.step)} of ${count(task.steps)}` : ''),
      el('td', {}, loss(task.loss)), el('td', {}, hasEnded(document.run.state) ? '' : String(task.copies)))))));
}

// What the models of the tasks draw while they are trained, from the same noise each time. The step in the address makes a new one load.
export function pictures(run, images) {
  if (images.length === 0) return null;
  const sorted = [...images].sort((a, b) => a.task.localeCompare(b.task, undefined, { numeric: true }));
  const address = (image) => `/api/runs/${encodeURIComponent(run)}/picture?task=${encodeURIComponent(image.task)}&step=${image.step}`;
  return el('div', { class: 'pictures' }, sorted.slice(0, kMostCards).map((image) => el('figure', {},
    el('img', { src: address(image), alt: `images drawn by ${image.task} after ${plural(image.step, 'step', 'steps')}` }),
    el('figcaption', {}, `${image.task}, step ${count(image.step)}`, el('span', { class: 'quiet' }, ` on ${image.island}`)))));
}

export function commands(document) {
  const { run } = document;
  const phased = tasksOf(document).length > 0;
  const name = shellWord(run.id);
  const paused = run.state === 'paused' || run.state === 'failed' || run.state === 'cancelled';
  return el('ul', { class: 'commands' },
    hasEnded(run.state) ? null : command(`atoll status ${name} --watch`, 'the same in a terminal'),
    run.state === 'running' ? command(`atoll pause ${name}`, 'stops it after the round in hand') : null,
    paused ? command(`atoll resume ${name}`, 'lets it go on') : null,
    run.round > 0 && !phased ? command(`atoll export ${name} -o model.safetensors`, 'takes the newest model') : null,
    phased && run.state === 'completed' ? command(`atoll sample ${name} -o images.png`, 'draws images from the ensemble') : null,
    phased && run.state === 'completed' ? command(`atoll export ${name} -o ensemble`, 'takes the ensemble as a folder') : null,
    command(`atoll trace ${name} -o trace.json`, 'the whole timeline, for ui.perfetto.dev'));
}

export function runList(runs, chosen) {
  return el('div', { class: 'scroll' }, el('table', { class: 'list' },
    el('thead', {}, el('tr', {}, ['run', 'state', 'round', 'loss', 'islands', 'since'].map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, runs.slice(0, 100).map((run) => {
      const { mark, word } = health(run, 0);
      return el('tr', { class: run.id === chosen ? 'chosen' : null }, el('td', {}, el('a', { href: `/r/${encodeURIComponent(run.id)}`, 'data-key': run.id }, run.name)),
        el('td', {}, el('span', { class: `mark ${mark}` }, `${marks[mark]} ${word}`)), el('td', {}, roundsDone(run)), el('td', {}, loss(run.outer_loss)),
        el('td', {}, String(run.islands)), el('td', {}, clock(run.created_unix_ms)));
    }))));
}
