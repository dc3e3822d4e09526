// Numbers, times and states as people read them. Pure.

export const known = (value) => typeof value === 'number' && Number.isFinite(value);

export function count(value) {
  if (!known(value)) return '–';
  const units = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']];
  for (const [size, unit] of units) {
    if (Math.abs(value) >= size) return `${(value / (unit === 'k' ? 1e3 : size)).toPrecision(3)} ${unit}`;
  }
  return Number.isInteger(value) || Math.abs(value) >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

export function bytes(value) {
  if (!known(value)) return '–';
  for (const [size, unit] of [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

export function bits(value) {
  if (!known(value)) return '–';
  for (const [size, unit] of [[1e9, 'Gbit/s'], [1e6, 'Mbit/s'], [1e3, 'kbit/s']]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} bit/s`;
}

export function duration(seconds) {
  if (!known(seconds)) return '–';
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// In whatever currency the price is.
export function money(sentBytes, perGigabyte) {
  if (!known(sentBytes) || !known(perGigabyte)) return null;
  const value = (sentBytes / 1e9) * perGigabyte;
  return `${value < 1 ? Number(value.toPrecision(2)) : value.toFixed(2)} at ${perGigabyte} a GB`;
}

export const loss = (value) => (known(value) ? value.toPrecision(4) : '–');
export const percent = (part, rest) => (known(part) && known(rest) && part + rest > 0 ? `${((100 * part) / (part + rest)).toFixed(1)} %` : '–');
export const plural = (number, one, many) => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

// "14:05", with the day where it is another one; with seconds where a stretch of less than ten minutes is cut into such times.
export function clock(ms, stretch = Infinity) {
  if (!known(ms)) return '–';
  const time = new Date(ms);
  const now = Date.now();
  const hour = time.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: stretch < 600e3 ? '2-digit' : undefined, hour12: false });
  const sameDay = time.toDateString() === new Date(now).toDateString();
  return sameDay ? hour : `${time.toLocaleDateString([], { weekday: 'short', day: 'numeric', month: 'short' })} ${hour}`;
}

const states = {
  queued: ['waits', 'Queued'],
  starting: ['waits', 'Starting'],
  running: ['good', 'Running'],
  interrupted: ['bad', 'Interrupted'],
  paused: ['still', 'Paused'],
  completed: ['good', 'Completed'],
  failed: ['bad', 'Failed'],
  cancelled: ['still', 'Cancelled'],
};
// The mark's shape says the same as its colour.
export const marks = { good: '●', waits: '▲', bad: '✖', still: '■' };

export const hasEnded = (state) => ['completed', 'failed', 'cancelled'].includes(state);

// How a run is: a mark, and what to call it. A run whose reason has stood for a minute is one that somebody should look at.
export function health(run, now) {
  const [mark, word] = states[run.state] ?? ['still', run.state];
  const stands = run.state === 'running' && run.reason && known(run.reason_since_unix_ms) ? (now - run.reason_since_unix_ms) / 1000 : 0;
  return stands > 60 ? { mark: 'waits', word: 'Waiting', stands } : { mark, word, stands };
}

// A run that ends after a number of committed tokens has no number of rounds that is known before.
export function roundsDone(run) {
  return known(run.token_limit) ? `${run.round.toLocaleString('en')}, with ${count(run.tokens_committed)} of ${count(run.token_limit)} ${run.images ? 'images' : 'tokens'}`
    : `${run.round.toLocaleString('en')} of ${run.rounds.toLocaleString('en')}`;
}

// The share of a run of rounds that is done, by its rounds or its tokens, whichever is further.
export function shareOfRun(run) {
  const byRounds = run.rounds ? run.round / run.rounds : 0;
  return Math.min(1, known(run.token_limit) ? Math.max(byRounds, run.tokens_committed / run.token_limit) : byRounds);
}

// Seconds until the end at the speed of the newest rounds, with how many those are. Nothing where that says nothing.
export function timeLeft(run, rows, now) {
  if (run.state !== 'running' || !run.rounds || run.round >= run.rounds) return null;
  const newest = rows.filter((row) => row.round > 0).slice(-20);
  const first = newest[0];
  const last = newest.at(-1);
  if (newest.length < 3 || last.round === first.round) return null;
  const perRound = (last.time_unix_ms - first.time_unix_ms) / 1000 / (last.round - first.round);
  const since = Math.max(0, (now - last.time_unix_ms) / 1000);
  const tokensPerRound = newest.slice(1).reduce((sum, row) => sum + (row.tokens ?? 0), 0) / (last.round - first.round);
  const byTokens = known(run.token_limit) && tokensPerRound > 0 ? Math.ceil(Math.max(0, run.token_limit - run.tokens_committed) / tokensPerRound) : Infinity;
  const seconds = Math.max(0, Math.min(run.rounds - last.round, byTokens) * perRound - Math.min(since, perRound));
  return { seconds, rounds: last.round - first.round };
}
