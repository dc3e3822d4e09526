// The page of one island's owner, and the page for whoever pays: what the documents say, in sentences.
import { el } from './dom.js';
import { waitedFor } from './parts.js';
import { bits, bytes, clock, count, duration, hasEnded, known, loss, marks, money, health, percent, plural, timeLeft } from './text.js';

// What an owner can know and try: whether others wait, for what, and how the island compares with the fastest.
export function ownerSentences(island, status) {
  const sentences = [];
  const { run, islands } = status;
  const me = islands.find((one) => one.id === island.id);
  if (!me) return { sentences, tries: [] };
  const wait = waitedFor(islands).get(me.name) ?? { ready: 0, link: 0 };
  const rounds = Math.max(1, run.round);
  const all = wait.ready + wait.link;
  const stands = run.state === 'interrupted';
  if (stands) sentences.push('The run is interrupted: no round is done at present.');
  if (!stands || all > 0.5) sentences.push(all > 0.5 ? `Others waited for you: ${duration(all)} in all, ${duration(all / rounds)} a round.` : 'Nobody waited for you.');
  const fastest = islands.filter((one) => one.active && known(one.tokens_per_second)).sort((a, b) => b.tokens_per_second - a.tokens_per_second)[0];
  if (fastest && known(me.tokens_per_second) && fastest.id !== me.id) {
    sentences.push(`You train on ${count(me.tokens_per_second)} tokens a second, the fastest island (${fastest.name}) on ${count(fastest.tokens_per_second)}.`);
  } else if (fastest?.id === me.id) {
    sentences.push(`You train on ${count(me.tokens_per_second)} tokens a second: no island is faster.`);
  }
  const tries = [];
  if (all > 0.5 && wait.ready >= wait.link) {
    sentences.push(`${Math.round((100 * wait.ready) / all)} % of it was for your contribution to be ready, so your link is not the cause.`);
    tries.push('look at what else runs on the machine: atoll doctor', 'with pace = "adaptive" in the run file a round ends with its first island, and slower ones do fewer steps');
  } else if (all > 0.5) {
    sentences.push(`${Math.round((100 * wait.link) / all)} % of it was for what you send, so your link is the cause.`);
    tries.push('a codec of fewer bits in the run file (int8, fp4)', 'streaming-diloco with overlap_steps, which exchanges while the islands train on',
      known(island.uplink_budget_bits_per_second) ? `a larger --uplink of the agent: it is ${bits(island.uplink_budget_bits_per_second)}` : null);
  }
  if (me.waits.length) sentences.push(`You waited ${duration(me.wait_seconds)} yourself, the longest for ${me.waits[0].text}: ${duration(me.waits[0].seconds)}.`);
  return { sentences, tries: tries.filter(Boolean) };
}

export function island(island, status, alone) {
  const { sentences, tries } = status ? ownerSentences(island, status) : { sentences: [], tries: [] };
  const fact = (name, value) => (value === null || value === '–' || value === '' ? null : el('div', { class: 'fact' }, el('dt', {}, name), el('dd', {}, value)));
  const me = status?.islands.find((one) => one.id === island.id);
  return [
    el('h1', {}, island.name),
    el('p', { class: 'state' }, el('span', { class: `mark ${island.connected ? 'good' : 'bad'}` }, island.connected ? `${marks.good} ${island.state}` : `${marks.bad} ${island.link}`),
      island.reason ? `: ${island.reason}` : '', island.connected ? '' : `, last heard at ${clock(island.last_seen_unix_ms)}`),
    status ? el('p', {}, 'In run ', alone ? status.run.name : el('a', { href: `/r/${encodeURIComponent(status.run.id)}`, 'data-key': 'run' }, status.run.name), '.') : el('p', {}, 'In no run at present.'),
    el('section', {}, sentences.map((sentence) => el('p', {}, sentence)), tries.length ? [el('p', {}, 'What to try:'), el('ul', {}, tries.map((text) => el('li', {}, text)))] : null),
    el('dl', { class: 'facts plain' }, fact('time computing', percent(me?.compute_seconds, me?.wait_seconds)), fact('step', count(me?.step)), fact('training loss', me?.step ? loss(me.training_loss) : loss(null)),
      fact('newest exchange, up', bits(island.uplink_bits_per_second)), fact('down', bits(island.downlink_bits_per_second)), fact('address', island.address),
      fact('machine', island.platform), fact('arithmetic', me?.kernels ?? null), fact('version', island.version), fact('data sets', island.data_sets.join(', ')), fact('id', island.id)),
  ];
}

// On track or not, when done, what happened.
export function summary(document, rows, price) {
  const { run, absences } = document;
  const now = document.now_unix_ms;
  const { mark, word } = health(run, now);
  const time = timeLeft(run, rows, now);
  const sentences = [];
  if (hasEnded(run.state)) sentences.push(`It ended on ${new Date(run.ended_unix_ms).toLocaleString()}, after ${duration((run.ended_unix_ms - run.created_unix_ms) / 1000)}: ${run.reason || run.state}.`);
  else if (time) sentences.push(`It will be done in about ${duration(time.seconds)}, at ${clock(now + time.seconds * 1000)}, if it goes on as in the last ${time.rounds} rounds.`);
  if (!hasEnded(run.state) && run.reason) sentences.push(`At present: ${run.reason}.`);
  sentences.push(`${known(run.token_limit) ? `${run.round.toLocaleString('en')} rounds are done, with ${count(run.tokens_committed)} of ${count(run.token_limit)} ${run.images ? 'images' : 'tokens'}` : `${run.round.toLocaleString('en')} of ${run.rounds.toLocaleString('en')} rounds are done`}${run.members ? `, on ${plural(run.members, 'island', 'islands')} at present` : ''}.`);
  if (known(run.outer_loss) && known(run.initial_loss)) sentences.push(`The validation loss fell from ${loss(run.initial_loss)} to ${loss(run.outer_loss)}.`);
  if (known(price)) sentences.push(`The islands sent ${bytes(run.bytes_sent)} to each other, which costs ${money(run.bytes_sent, price)}.`);
  sentences.push(`${percent(run.compute_seconds, run.wait_seconds)} of the islands' time was spent computing.`);
  const incidents = absences.slice(-12).map((absence) => `${absence.island} was away from ${clock(absence.since_unix_ms)} on${absence.until_unix_ms ? `, for ${duration((absence.until_unix_ms - absence.since_unix_ms) / 1000)}` : ''}: ${absence.cause}.`);
  return [
    el('h1', {}, run.name),
    el('p', { class: 'state' }, el('span', { class: `mark ${mark}` }, `${marks[mark]} ${word}`)),
    sentences.map((sentence) => el('p', {}, sentence)),
    el('h2', {}, incidents.length ? 'Incidents' : 'No incidents'),
    incidents.length ? el('ul', {}, incidents.map((sentence) => el('li', {}, sentence))) : null,
    absences.length > 12 ? el('p', { class: 'quiet' }, `and ${absences.length - 12} earlier ones`) : null,
  ];
}
