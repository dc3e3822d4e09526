// What stands at the address: a run (the newest at /), its summary, or an island; kept up to date while somebody looks.
import { Refused, Rounds, ask, askAbout, follow, runPath } from './api.js';
import { Curve } from './curve.js';
import { el, fill } from './dom.js';
import * as owner from './owner.js';
import * as parts from './parts.js';
import { Strips } from './strips.js';
import { clock, hasEnded } from './text.js';

const kBetween = 2000;
const kMostEvents = 5000;
const main = document.getElementById('main');
const link = document.getElementById('link');

// Whether the coordinator answers.
let lost = null;
function answered(error) {
  const was = lost;
  lost = !error ? null : (lost ?? Date.now());
  if (error || was) fill(link, error ? `no answer since ${clock(lost)}; asking again` : '');
  link.classList.toggle('bad', Boolean(error));
}

const section = (title, ...children) => el('section', {}, el('h2', {}, title), children);

// A section that is there only while it has something to show.
class Optional {
  constructor(title) {
    this.body = el('div');
    this.node = section(title, this.body);
    this.node.hidden = true;
  }
  show(...children) {
    const some = children.flat().some(Boolean);
    this.node.hidden = !some;
    if (some) fill(this.body, ...children);
  }
}

class RunPage {
  constructor(run) {
    this.run = run;
    this.rounds = new Rounds(run);
    this.events = [];
    this.others = new Map();
    this.stripWindow = null;
    this.head = el('section', { class: 'head' });
    this.curve = new Curve('', (window, timed) => { this.zoom(window, timed); });
    this.beside = el('div', { class: 'beside', role: 'group', 'aria-label': 'Other runs on the same axes' });
    this.strips = new Strips();
    this.curveSection = section('Loss', this.curve.node, this.beside);
    this.stripSection = section('Time', this.strips.node);
    this.curveSection.hidden = this.stripSection.hidden = true;
    this.phases = new Optional('Phases');
    this.pictures = new Optional('Images as they come');
    this.islands = new Optional('Islands');
    this.matrix = new Optional('Who reaches whom');
    this.warnings = new Optional('Warnings');
    this.filter = el('input', { type: 'search', placeholder: 'filter', 'aria-label': 'Filter events', oninput: () => this.showEvents() });
    this.lines = el('ol', { class: 'events', tabindex: 0, 'aria-label': 'Events, newest first' });
    this.eventSection = section('Events', this.filter, this.lines);
    this.todo = new Optional('What can be done');
    this.runs = new Optional('Runs');
    main.replaceChildren(this.head, this.curveSection, this.stripSection, this.phases.node, this.pictures.node, this.islands.node, this.matrix.node, this.warnings.node,
      this.eventSection, this.todo.node, this.runs.node);
  }

  async start() {
    await this.update();
    this.source = follow(this.run, (event) => this.take(event), () => {});
  }

  take(event) {
    this.events.push(event);
    if (this.events.length > kMostEvents) this.events.splice(0, this.events.length - kMostEvents);
    this.soon ??= setTimeout(() => { this.soon = null; this.showEvents(); this.showCurve(); }, 100);
  }

  showEvents() {
    fill(this.lines, parts.eventLines(this.events, this.filter.value));
  }

  zoom(window, timed) {
    requestAnimationFrame(() => this.align(timed));  // once the curve has its size
    if (String(window) === String(this.stripWindow)) return;
    this.stripWindow = window;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.updateStrips().catch(() => {}), 250);
  }

  // Where both show time the strips stand below the curve's own times.
  align(timed) {
    const over = this.curve.plot?.over;
    if (!over?.offsetWidth) return;
    const right = this.curve.place.clientWidth - over.offsetLeft - over.offsetWidth;
    this.strips.node.style.setProperty('--left', timed ? `${over.offsetLeft}px` : '0');
    this.strips.node.style.setProperty('--right', timed ? `${Math.max(0, right)}px` : '0');
  }

  async updateStrips() {
    const [from, to] = (this.stripWindow ?? this.curve.whole_times ?? [0, 0]).map(Math.round);
    const [document, paths] = await Promise.all([ask(`${runPath(this.run)}/strips?from=${from}&to=${to}`), this.paths()]);
    this.stripSection.hidden = document.islands.length === 0;
    if (document.islands.length) this.strips.show(document, this.status.absences);
    this.matrix.show(parts.matrix(document.links, paths, this.status.run.unsteady));
  }

  // What the run's islands got from each other when they tried.
  async paths() {
    const names = new Set(this.status.islands.filter((island) => island.connected).map((island) => island.name));
    if (hasEnded(this.status.run.state) || names.size > parts.kMostInMatrix) return [];
    const { islands } = await ask('islands');
    return islands.filter((island) => island.connected && names.has(island.name))
      .flatMap((island) => island.paths.filter((path) => names.has(path.from)).map((path) => ({ ...path, to: island.name })));
  }

  showCurve() {
    const rows = this.rounds.rows;
    this.curveSection.hidden = !rows.some((row) => row.outer_loss !== null || row.training_loss !== null);
    if (!this.curveSection.hidden) this.curve.show(rows, parts.marksOf(this.events), this.others);
  }

  async update() {
    const [status, list, about] = await Promise.all([ask(runPath(this.run)), ask('runs'), askAbout(), this.rounds.update()]);
    this.status = status;
    this.curve.name = status.run.name;
    document.title = `${status.run.name} · Atoll`;
    fill(document.getElementById('crumbs'), el('a', { href: `/r/${encodeURIComponent(status.run.id)}/summary`, 'data-key': 'summary' }, 'summary'));
    fill(this.head, parts.head(status, this.rounds.rows, about.price_per_gigabyte));
    this.phases.show(parts.phases(status));
    this.islands.show(status.islands.length ? parts.cards(status) : null);
    this.warnings.show(status.warnings.length ? el('ul', { class: 'warnings' }, parts.warnings(status.warnings)) : null);
    this.todo.show(parts.commands(status));
    this.runs.show(list.runs.length > 1 ? parts.runList(list.runs, status.run.id) : null);
    this.showBeside(list.runs);
    await Promise.all([...this.others.keys()].map(async (name) => this.others.set(name, await this.otherRounds.get(name).update())));
    this.showCurve();
    this.ended = hasEnded(status.run.state);
    if (!this.looked || Date.now() - this.looked > 5000) {
      this.looked = Date.now();
      await this.updateStrips();
      if (status.run.images) this.pictures.show(parts.pictures(this.run, (await ask(`${runPath(this.run)}/images`)).images));
    }
  }

  showBeside(runs) {
    this.otherRounds ??= new Map();
    const offered = runs.filter((run) => run.id !== this.status.run.id && run.outer_loss !== null).slice(0, 8);
    const key = offered.map((run) => run.id).join(' ');
    if (key === this.besideKey) return;
    this.besideKey = key;
    this.beside.replaceChildren(...offered.map((run) => {
      const name = `${run.name} (${run.id.slice(0, 6)})`;
      const box = el('input', { type: 'checkbox', onchange: async () => {
        if (box.checked) {
          this.otherRounds.set(name, new Rounds(run.id));
          this.others.set(name, await this.otherRounds.get(name).update());
        } else {
          this.others.delete(name);
        }
        this.showCurve();
      } });
      box.checked = this.others.has(name);
      return el('label', {}, box, ` ${name}`);
    }));
    if (offered.length) this.beside.prepend('beside it: ');
  }
}

class SummaryPage {
  constructor(run) {
    this.run = run;
    this.rounds = new Rounds(run);
    this.text = el('section', { class: 'summary' });
    this.curve = new Curve('', () => {});
    this.curve.axis = 'time';
    main.replaceChildren(this.text, this.curve.node);
  }
  async start() { await this.update(); }
  async update() {
    const [status, about] = await Promise.all([ask(runPath(this.run)), askAbout(), this.rounds.update()]);
    document.title = `${status.run.name}, summary · Atoll`;
    fill(document.getElementById('crumbs'), el('a', { href: `/r/${encodeURIComponent(status.run.id)}`, 'data-key': 'run' }, 'the run'));
    fill(this.text, owner.summary(status, this.rounds.rows, about.price_per_gigabyte));
    this.curve.name = status.run.name;
    const marks = status.absences.map((absence) => ({ ms: absence.since_unix_ms, sign: '✖', what: 'an island went', bad: true, text: absence.cause }));
    this.curve.node.hidden = !this.rounds.rows.some((row) => row.outer_loss !== null);
    if (!this.curve.node.hidden) this.curve.show(this.rounds.rows, marks, new Map());
    this.ended = hasEnded(status.run.state);
  }
}

class IslandPage {
  constructor(name) {
    this.name = name;
    this.body = el('section', { class: 'head' });
    main.replaceChildren(this.body);
  }
  async start() { await this.update(); }
  async update() {
    const [{ islands }, about] = await Promise.all([ask('islands'), askAbout()]);
    const island = islands.find((one) => one.name === this.name && one.connected) ?? islands.find((one) => one.name === this.name || one.id === this.name);
    if (!island) throw new Refused(404, `there is no island ${this.name}`);
    document.title = `${island.name} · Atoll`;
    fill(this.body, owner.island(island, island.run ? await ask(runPath(island.run)) : null, about.island !== null));
  }
}

async function pageFor(path) {
  const [, kind, name, more] = path.split('/').map(decodeURIComponent);
  if (kind === 'i') return new IslandPage(name);
  if (kind === 'r') return more === 'summary' ? new SummaryPage(name) : new RunPage(name);
  const { runs } = await ask('runs');
  const whole = runs.filter((run) => !run.part_of);
  const newest = whole.find((run) => !hasEnded(run.state)) ?? whole[0];
  return newest ? new RunPage(newest.id) : null;
}

function say(title, ...words) {
  main.replaceChildren(section(title, words));
}

async function live() {
  let page = null;
  for (;;) {
    try {
      if (!document.hidden) {
        if (page) await page.update();
        else {
          page = await pageFor(location.pathname);
          if (page) await page.start();
          else say('No runs yet', el('p', {}, 'Submit one: ', el('code', {}, 'atoll submit run.toml')));
        }
        answered(null);
      }
    } catch (error) {
      if (error instanceof Refused && (error.status === 404 || error.status === 409)) {
        say('Not here', el('p', {}, error.message));
        page = null;
      } else {
        console.error(error);
        answered(error);
      }
    }
    await new Promise((resolve) => { setTimeout(resolve, page?.ended ? 5 * kBetween : kBetween); });
  }
}

live();
