// The loss curve: against tokens, steps, rounds or time; with other runs beside it, and what happened as marks with words.
/* global uPlot */
import { el, fill } from './dom.js';
import { clock, count, known, loss } from './text.js';

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const otherColours = ['--other-1', '--other-2', '--other-3', '--other-4'];
const axisWidth = 58;

// What can stand below the curve, of a run's rounds: a value for each row, or nothing where it is not known.
const axes = {
  time: { name: 'time', of: (rows) => rows.map((row) => row.time_unix_ms / 1000) },
  round: { name: 'rounds', of: (rows) => rows.map((row) => row.round) },
  step: { name: 'inner steps', of: (rows) => rows.map((row) => row.step) },
  tokens: { name: 'tokens', of: tokensOf },
};

// Added up, which is right only as long as no round is missing.
function tokensOf(rows) {
  let sum = 0;
  const values = [];
  for (const [index, row] of rows.entries()) {
    if (index > 0 && row.round !== rows[index - 1].round + 1) return null;
    sum += row.tokens;
    values.push(sum);
  }
  return sum > 0 && rows[0]?.round === 0 ? values : null;
}

const points = (rows, axis, key) => {
  const x = axes[axis].of(rows);
  if (!x) return [[], []];
  const kept = rows.map((row, index) => [x[index], row[key]]).filter(([at, value]) => known(at) && known(value));
  kept.sort((a, b) => a[0] - b[0]);
  return [kept.map((pair) => pair[0]), kept.map((pair) => pair[1])];
};

// Where a moment lies on the chosen axis.
function placeOf(ms, rows, axis) {
  if (axis === 'time') return ms / 1000;
  const x = axes[axis].of(rows);
  if (!x || rows.length < 2) return null;
  const next = rows.findIndex((row) => row.time_unix_ms >= ms);
  if (next <= 0) return next === 0 ? x[0] : x.at(-1);
  const before = rows[next - 1];
  const part = (ms - before.time_unix_ms) / Math.max(1, rows[next].time_unix_ms - before.time_unix_ms);
  return x[next - 1] + part * (x[next] - x[next - 1]);
}

export class Curve {
  // zoomed: called with the times between which the curve shows, or null where it shows all or no times.
  constructor(name, zoomed) {
    this.name = name;
    this.zoomed = zoomed;
    this.axis = 'step';
    this.log = false;
    this.rows = [];
    this.others = new Map();
    this.marks = [];
    this.place = el('div', { class: 'curve' });
    this.words = el('p', { class: 'quiet words', role: 'status' });
    this.controls = el('div', { class: 'controls' });
    this.whole = el('button', { type: 'button', hidden: true, onclick: () => this.draw() }, 'whole curve');
    this.node = el('div', {}, this.controls, this.place, this.words);
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  size() {
    return { width: Math.max(240, Math.floor(this.place.clientWidth)), height: 280 };
  }

  show(rows, marks, others) {
    const before = this.shape;
    this.rows = rows;
    this.marks = marks;
    this.others = others;
    this.shape = `${Object.keys(axes).filter((axis) => axes[axis].of(rows))} ${[...others.keys()].join('\n')} ${rows.some((row) => known(row.training_loss))}`;
    const size = `${rows.length} ${rows.at(-1)?.time_unix_ms} ${marks.length} ${[...others.values()].map((o) => o.length)}`;
    if (!this.plot || this.shape !== before) this.draw();
    else if (size !== this.drawn) this.refresh();
    this.drawn = size;
    this.sayMark(this.plot);
  }

  drawControls() {
    const choose = (axis) => () => { this.axis = axis; this.draw(); };
    const offered = Object.keys(axes).filter((axis) => axes[axis].of(this.rows));
    if (!offered.includes(this.axis)) this.axis = 'time';
    fill(this.controls, el('span', { class: 'choice', role: 'group', 'aria-label': 'The loss against' }, offered.map((axis) =>
      el('button', { type: 'button', 'aria-pressed': String(axis === this.axis), 'data-key': `axis ${axis}`, onclick: choose(axis) }, axes[axis].name))),
    el('span', { class: 'choice', role: 'group', 'aria-label': 'The loss is drawn' }, [false, true].map((log) =>
      el('button', { type: 'button', 'aria-pressed': String(log === this.log), 'data-key': `log ${log}`, onclick: () => { this.log = log; this.draw(); } },
        log ? 'logarithmic' : 'linear'))));
    this.controls.append(this.whole);
  }

  data() {
    const tables = [points(this.rows, this.axis, 'outer_loss')];
    if (this.hasTraining()) tables.push(points(this.rows, this.axis, 'training_loss'));
    for (const rows of this.others.values()) tables.push(points(rows, this.axis, 'outer_loss'));
    return uPlot.join(tables.map((table) => (table[0].length ? table : [[], []])));
  }

  hasTraining() {
    return this.rows.some((row) => known(row.training_loss));
  }

  series() {
    const value = (_, at) => loss(at);
    const main = { label: `${this.name}: validation loss`, stroke: colour('--curve'), width: 2.5, spanGaps: true, value, points: { show: this.rows.length < 40, size: 5 } };
    const training = { label: 'training loss', stroke: colour('--training'), width: 1, spanGaps: true, value, points: { show: false } };
    const others = [...this.others.keys()].map((name, index) => ({
      label: name, stroke: colour(otherColours[index % otherColours.length]), width: 1.5, dash: [[8, 3], [3, 3], [12, 3, 3, 3], [2, 5]][index % 4], spanGaps: true, value, points: { show: false },
    }));
    const label = axes[this.axis].name;
    const x = { label, value: (_, at) => (known(at) ? (this.axis === 'time' ? clock(at * 1000, 0) : count(at)) : '–') };
    return [x, main, ...(this.hasTraining() ? [training] : []), ...others];
  }

  draw() {
    this.drawControls();
    this.whole.hidden = true;
    this.plot?.destroy();
    const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: '12px system-ui, sans-serif' };
    const values = this.axis === 'time' ? (plot, splits) => splits.map((at) => clock(at * 1000, (plot.scales.x.max - plot.scales.x.min) * 1000)) : (_, splits) => splits.map((at) => count(at));
    this.plot = new uPlot({
      ...this.size(),
      series: this.series(),
      scales: { x: { time: false }, y: { distr: this.log ? 3 : 1 } },
      axes: [
        { ...axis, values, space: this.axis === 'time' ? 90 : 60, incrs: this.axis === 'time' ? [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800] : this.axis === 'round' || this.axis === 'step' ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] : undefined },
        { ...axis, size: axisWidth, values: (_, splits) => splits.map((at) => (at === null ? '' : at.toPrecision(3))) },
      ],
      cursor: { drag: { x: true, y: false }, points: { size: 7 } },
      hooks: {
        draw: [(plot) => this.drawMarks(plot)],
        setCursor: [(plot) => this.sayMark(plot)],
        setScale: [(plot, key) => { if (key === 'x') this.sayZoom(plot); }],
      },
    }, this.data(), this.place);
    this.zoomed(null, this.axis === 'time');
  }

  refresh() {
    const zoomed = !this.whole.hidden;
    this.plot.setData(this.data(), !zoomed);
    if (zoomed) this.plot.redraw();
  }

  sayZoom(plot) {
    const x = plot.data[0];
    const { min, max } = plot.scales.x;
    const part = x.length > 1 && (min > x[0] || max < x.at(-1));
    this.whole.hidden = !part;
    this.zoomed(this.axis === 'time' && known(min) ? [min * 1000, max * 1000] : null, this.axis === 'time');
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${13 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = 'center';
    for (const mark of this.marks) {
      const at = placeOf(mark.ms, this.rows, this.axis);
      if (at === null || at < plot.scales.x.min || at > plot.scales.x.max) continue;
      const x = plot.valToPos(at, 'x', true);
      ctx.strokeStyle = ctx.fillStyle = colour(mark.bad ? '--bad' : '--quiet');
      ctx.globalAlpha = 0.55;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + 14 * ratio);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.fillText(mark.sign, x, bbox.top + 11 * ratio);
    }
    ctx.restore();
  }

  sayMark(plot) {
    const near = plot.cursor.left < 0 ? [] : this.marks.filter((mark) => {
      const at = placeOf(mark.ms, this.rows, this.axis);
      return at !== null && Math.abs(plot.valToPos(at, 'x') - plot.cursor.left) < 6;
    });
    const words = near.length ? near.slice(0, 3).map((mark) => `${mark.sign} ${clock(mark.ms)} ${mark.text}`).join(' · ') : this.legend();
    if (this.words.textContent !== words) this.words.textContent = words;
  }

  legend() {
    const signs = new Map(this.marks.map((mark) => [mark.sign, mark.what]));
    return [...signs].map(([sign, what]) => `${sign} ${what}`).concat(this.rows.length > 1 ? ['drag to zoom'] : []).join(' · ');
  }
}
