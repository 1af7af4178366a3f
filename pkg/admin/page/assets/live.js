// The status of the process as the events tell it, for all views.

import { events, fleet, get, scoped } from './api.js';
import { seconds } from './format.js';

const keep = 900; // seconds of history
const staleAfter = 3500; // ms without an event
const pollEvery = 2000; // ms between two answers for all replicas, each of which takes up to 1 s

const listeners = new Set();
let stream = null;
let heardAt = 0; // when the last event came
let asked = 0;

export const live = {
  status: null, // the newest event
  history: null, // of columnsOf, a value for each second
  get stale() { return Date.now() - (heardAt || asked) > staleAfter + (fleet.on ? 2 * pollEvery : 0); },
  // age is the time in seconds for which nothing has been heard.
  get age() { return (Date.now() - (heardAt || asked)) / 1000; },
  // now is the clock of the process, as far as it is known here.
  get now() { return Date.now() + offset; },
};

let offset = 0;

// start begins to listen.
export function start() {
  pause();
  stream = new AbortController();
  asked = Date.now();
  if (fleet.on) poll(stream.signal);
  else events('/v1/events', heard, stream.signal);
}

// poll asks for the status of the replicas that the page shows until signal is aborted.
async function poll(signal) {
  while (!signal.aborted) {
    try {
      heard(await get(scoped('/v1/status', { history: true }), { signal }));
    } catch (e) {
      if (signal.aborted || e.status === 401) return;
    }
    await new Promise((done) => setTimeout(done, pollEvery));
  }
}

// pause ends that, and keeps what was heard. A browser opens six connections to a server,
// so pages that nobody sees must not hold them.
export function pause() {
  stream?.abort();
  stream = null;
  heardAt = 0;
}

// stop also forgets what was heard.
export function stop() {
  pause();
  live.status = live.history = null;
  Object.assign(fleet, { on: false, all: [], chosen: '' });
}

// watch calls f with each event, and at once if there was one. It returns the function that
// ends that.
export function watch(f) {
  listeners.add(f);
  if (live.status) f(live.status);
  return () => listeners.delete(f);
}

function heard(status) {
  if (status.fleet && !fleet.on) {
    fleet.on = true;
    start();
    return;
  }
  if (status.replicas && !fleet.chosen) fleet.all = status.replicas;
  heardAt = Date.now();
  offset = Date.parse(status.now) - heardAt;
  live.status = status;
  if (status.history) {
    live.history = columnsOf(status.history);
  } else if (status.second && live.history) {
    append(status.second);
  }
  for (const f of listeners) f(status);
}

// columnsOf is a history as {until, step, requests, denied, errors, p50, p99}: columns with a value for each
// step, in s.
export const columnsOf = (h) => h && { until: Date.parse(h.until) / 1000, step: seconds(h.step ?? '1s'), requests: h.requests, denied: h.denied, errors: h.errors, p50: h.p50_us, p99: h.p99_us };

// append adds a second; seconds that were missed are empty.
function append(second) {
  const h = live.history;
  const at = Date.parse(second.at) / 1000;
  if (at <= h.until) return;
  const columns = { requests: second.requests, denied: second.denied, errors: second.errors, p50: second.p50_us, p99: second.p99_us };
  for (const [name, value] of Object.entries(columns)) {
    for (let missed = h.until + 1; missed < Math.min(at, h.until + keep); missed++) h[name].push(null);
    h[name].push(value);
    h[name].splice(0, h[name].length - keep);
  }
  h.until = at;
}
