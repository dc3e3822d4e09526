// A strip for each island: what it spent its time on. Above what its trainer did, below what its agent did meanwhile.
import { el, fill } from './dom.js';
import { clock, duration, plural } from './text.js';

const lanes = [
  ['computing', 'computing', '--computing', 0],
  ['waiting', 'waiting', '--waiting', 0],
  ['encoding', 'encoding and adding up', '--encoding', 1],
  ['exchanging', 'exchanging', '--exchanging', 1],
  ['storing', 'checkpoints, catching up', '--storing', 1],
];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const trainerHeight = 16;
const agentHeight = 8;
const gap = 1;

function paint(canvas, strip, absences, span) {
  const ratio = devicePixelRatio;
  const width = canvas.clientWidth;
  const height = trainerHeight + gap + agentHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext('2d');
  ctx.scale(ratio, ratio);
  ctx.fillStyle = colour('--empty');
  ctx.fillRect(0, 0, width, trainerHeight);
  ctx.fillRect(0, trainerHeight + gap, width, agentHeight);
  const bins = (strip.computing ?? strip.waiting ?? strip.exchanging ?? strip.encoding ?? strip.storing ?? []).length;
  const tops = [new Array(bins).fill(0), new Array(bins).fill(0)];
  for (const [key, , tone, lane] of lanes) {
    ctx.fillStyle = colour(tone);
    const full = lane === 0 ? trainerHeight : agentHeight;
    const base = lane === 0 ? trainerHeight : height;
    for (const [bin, part] of (strip[key] ?? []).entries()) {
      const size = Math.min(part / 100, 1 - tops[lane][bin]);
      if (size <= 0) continue;
      const left = (bin * width) / bins;
      ctx.fillRect(left, base - (tops[lane][bin] + size) * full, width / bins + 0.6, size * full);
      tops[lane][bin] += size;
    }
  }
  ctx.strokeStyle = colour('--bad');
  for (const away of absences) {
    const left = ((away.from - span[0]) / (span[1] - span[0])) * width;
    const right = ((away.to - span[0]) / (span[1] - span[0])) * width;
    for (let x = Math.max(0, left); x < Math.min(width, right); x += 5) {
      ctx.beginPath();
      ctx.moveTo(x, trainerHeight);
      ctx.lineTo(x + 5, 0);
      ctx.stroke();
    }
  }
}

function words(strip, bin, document, absences) {
  const at = document.from_unix_ms + ((bin + 0.5) * (document.to_unix_ms - document.from_unix_ms)) / document.bins;
  const parts = lanes.filter(([key]) => strip[key]?.[bin] > 0).map(([key, word]) => `${word} ${strip[key][bin]} %`);
  const wait = strip.waits.find((item) => item.bin === bin);
  const away = absences.find((item) => item.from <= at && at <= item.to);
  return [`${new Date(at).toLocaleTimeString([], { hour12: false })} ${strip.name}: ${parts.join(', ') || 'nothing known'}`,
    wait && `waited ${duration(wait.seconds)} for ${wait.text}`, away && `away: ${away.cause}`].filter(Boolean).join(' · ');
}

export class Strips {
  constructor() {
    this.rows = el('div', { class: 'rows' });
    this.words = el('p', { class: 'quiet words', role: 'status' });
    this.key = el('p', { class: 'key' }, lanes.map(([, word, tone]) => el('span', {}, el('i', { style: { background: `var(${tone})` } }), ` ${word}`)),
      el('span', {}, el('i', { class: 'hatched' }), ' away'));
    this.axis = el('div', { class: 'axis quiet' });
    this.node = el('div', {}, this.key, this.rows, this.axis, this.words);
    new ResizeObserver(() => this.paint()).observe(this.rows);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint());
  }

  show(document, absences) {
    this.document = document;
    const span = [document.from_unix_ms, document.to_unix_ms];
    const now = document.now_unix_ms ?? span[1];
    this.absences = (name) => absences.filter((item) => item.island === name)
      .map((item) => ({ from: item.since_unix_ms, to: item.until_unix_ms ?? now, cause: item.cause }));
    const names = document.islands.map((strip) => strip.name).join('\n');
    if (names !== this.names) {
      this.names = names;
      this.canvases = document.islands.map((strip, index) => el('canvas', { role: 'img', 'aria-label': `What ${strip.name} spent its time on`,
        onpointermove: (event) => this.say(index, event), onpointerleave: () => { this.words.textContent = this.note(); } }));
      fill(this.rows);
      this.rows.replaceChildren(...document.islands.map((strip, index) => el('div', { class: 'strip' },
        el('a', { href: `/i/${encodeURIComponent(strip.name)}`, title: strip.name }, strip.name), this.canvases[index])));
    }
    fill(this.axis, [span[0], (span[0] + span[1]) / 2, span[1]].map((ms) => el('span', {}, clock(ms, span[1] - span[0]))));
    this.words.textContent = this.note();
    this.paint();
  }

  note() {
    const { islands, islands_known: all } = this.document ?? { islands: [], islands_known: 0 };
    return islands.length < all ? `${islands.length} of ${plural(all, 'island', 'islands')}: those that waited least, for which the others wait`
      : 'trainer above, agent below; point at a strip for words';
  }

  paint() {
    if (!this.document) return;
    const span = [this.document.from_unix_ms, this.document.to_unix_ms];
    for (const [index, strip] of this.document.islands.entries()) paint(this.canvases[index], strip, this.absences(strip.name), span);
  }

  say(index, event) {
    const strip = this.document.islands[index];
    const bin = Math.floor((event.offsetX / this.canvases[index].clientWidth) * this.document.bins);
    this.words.textContent = words(strip, Math.min(Math.max(bin, 0), this.document.bins - 1), this.document, this.absences(strip.name));
  }
}
