// The coordinator's documents, and a run's events as they come.

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

export async function ask(path) {
  const answer = await fetch(`/api/${path}`, { cache: 'no-store' });
  const document = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, document?.error?.why ?? `status ${answer.status}`);
  return document;
}

// What the page shows besides documents: the price of sending, and the island for whose owner alone this link is.
let about = null;
export async function askAbout() {
  about ??= await ask('about');
  return about;
}

export const runPath = (name) => `runs/${encodeURIComponent(name)}`;

// Rounds by pages, each asked for once; the newest page again, as it may have grown.
export class Rounds {
  constructor(run) {
    this.run = run;
    this.rows = [];
    this.after = -1;
  }
  async update() {
    for (;;) {
      const page = await ask(`${runPath(this.run)}/metrics?after=${this.after}`);
      const known = this.rows.length ? this.rows.at(-1).round : -1;
      // Rounds that were lost and come again replace what they were.
      this.rows = this.rows.filter((row) => row.round < (page.metrics[0]?.round ?? Infinity) || row.round > page.next);
      this.rows.push(...page.metrics);
      if (this.rows.length && this.rows.at(-1).round > this.after + 8) this.after = this.rows.at(-1).round - 8;
      if (page.metrics.length < 1000 || this.rows.at(-1).round === known) return this.rows;
    }
  }
}

// Calls `take` with each event, in order; goes on by itself where the connection was lost.
export function follow(run, take, state) {
  const source = new EventSource(`/api/${runPath(run)}/events?since=0`);
  source.onmessage = (message) => take(JSON.parse(message.data));
  source.onopen = () => state(true);
  source.onerror = () => state(false);
  source.addEventListener('ended', () => source.close());
  return source;
}
