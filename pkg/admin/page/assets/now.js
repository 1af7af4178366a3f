// Now: is all well, and what does the process do?

import { el, fill, visible } from './dom.js';
import { fleet, get, scoped } from './api.js';
import { columnsOf, live, watch } from './live.js';
import { chart, sparkline } from './chart.js';
import { happened as line, told as textOf } from './events.js';
import { clock, count, latency, moment, percent, rate, seconds, short, span } from './format.js';

const headlines = { ok: 'All well', warning: 'Attention', critical: 'Action needed' };
const had = { warning: 'had a warning', critical: 'was critical' };
const ranges = { '15m': '15 min', '1h': '1 h', '6h': '6 h' };
const eventsEvery = 5000; // ms between two answers
const sparks = 60; // values of a sparkline
// The colours of the marks that events leave in the charts.
const marks = { 'store-away': '--red', 'store-back': '--green', 'rules-refused': '--amber', 'rules-loaded': '--violet' };
const breakers = { closed: 'answers', 'half-open': 'is being tried', open: 'is away' };

// tile is a number with its name and its last 15 minutes: {box, set(value, unit, note, state), past(values, words)}.
function tile(name) {
  const value = el('span', { className: 'value' }, '–');
  const unit = el('span', { className: 'unit' });
  const spark = el('div');
  const note = el('div', { className: 'note' });
  const box = el('div', { className: 'tile', role: 'group', 'aria-label': name }, el('h2', {}, name), el('div', {}, value, ' ', unit), spark, note);
  return {
    box,
    set(v, u, n, state = '') {
      value.textContent = v;
      unit.textContent = u;
      note.textContent = n;
      box.dataset.state = state;
    },
    past(values, words) { fill(spark, sparkline(values, [], `The last 15 minutes: at most ${words(Math.max(...values))}`)); },
  };
}

export function now(main, params) {
  const headline = el('p', { className: 'headline' }, 'Waiting for the first news…');
  const reasons = el('ul', { className: 'reasons' });
  const was = el('ul', { className: 'reasons dim', 'data-testid': 'was' });
  const banner = el('section', { className: 'banner', 'data-testid': 'banner', 'aria-label': 'State' }, headline, reasons, was);
  const tiles = Object.fromEntries(['Requests', 'Denied', 'Errors', 'Latency'].map((n) => [n, tile(n)]));
  const traffic = el('div', { className: 'chart' });
  const took = el('div', { className: 'chart' });
  const servers = el('div');
  const force = el('div');
  const others = el('div');
  const age = el('span', { className: 'num' });
  const happened = el('ol', { className: 'plain events', tabIndex: 0, 'aria-label': 'Events, the newest first' });
  let range = Object.hasOwn(ranges, params.get('range')) ? params.get('range') : '15m';
  const choices = Object.entries(ranges).map(([value, name]) =>
    el('button', { type: 'button', className: 'quiet', value, 'aria-pressed': String(value === range), onclick: () => choose(value) }, name));
  main.append(
    el('h1', {}, 'Now'), banner,
    el('section', { className: 'tiles', 'aria-label': 'Figures' }, Object.values(tiles).map((t) => t.box)),
    el('div', { className: 'actions ranges', role: 'group', 'aria-label': 'Range of the charts' }, choices),
    el('div', { className: 'pair' },
      el('section', { className: 'card' }, el('h2', {}, 'Requests a second'), traffic),
      el('section', { className: 'card' }, el('h2', {}, 'Time to answer'), took)),
    el('section', { className: 'card' }, el('h2', {}, 'Events of the last day'), happened),
    el('div', { className: 'trio' },
      el('section', { className: 'card' }, el('h2', {}, 'Store'), servers),
      el('section', { className: 'card' }, el('h2', {}, 'Rules in force'), force),
      el('section', { className: 'card', 'aria-label': 'Replicas' }, el('h2', {}, 'Replicas'), others)));

  const perSecond = (v) => `${rate(v)}/s`;
  const requests = chart(traffic, {
    label: 'Requests, denials and errors a second', axis: short,
    lines: [
      { label: 'requests', colour: '--blue', fill: '--blue-soft', value: perSecond },
      { label: 'denied', colour: '--amber', fill: '--amber-soft', value: perSecond },
      { label: 'errors', colour: '--red', value: perSecond },
    ],
  });
  const times = chart(took, {
    label: 'Time to answer', axis: (v) => (v ? latency(v / 1e6) : '0'),
    lines: [
      { label: 'p50', colour: '--blue', value: (v) => latency(v / 1e6) },
      { label: 'p99', colour: '--violet', dash: [4, 3], value: (v) => latency(v / 1e6) },
    ],
  });

  let told = '';
  const end = watch((s) => {
    banner.dataset.state = s.health.state;
    headline.textContent = headlines[s.health.state] ?? s.health.state;
    fill(reasons, s.health.reasons.map((r) => el('li', {}, visible(r))));
    fill(was, (s.health.was ?? []).map((w) => el('li', {}, `${had[w.state] ?? `was ${visible(w.state)}`} ${clock(w.from)}–${clock(w.until)}: ${visible((w.reasons ?? []).join(' '))}`)));
    const t = s.traffic;
    const since = ` since ${moment(s.started)}`;
    const [p50, p90, p99] = ['p50', 'p90', 'p99'].map((p) => latency(seconds(s.latency[p])));
    tiles.Requests.set(rate(t.requests), '/s', short(t.total.requests) + since);
    const [share, sign = ''] = percent(t.denied, t.requests).split(' ');
    tiles.Denied.set(share, sign, `${rate(t.denied)}/s, ${short(t.total.denied)}${since}`, t.denied ? 'amber' : '');
    const kinds = Object.entries(t.errors_by_kind ?? {}).filter(([, e]) => e.total > 0).map(([kind, e]) => `${short(e.total)} ${kind.replaceAll('_', ' ')}`);
    tiles.Errors.set(rate(t.errors), '/s', `${kinds.join(', ') || 'none'}${since}`, t.errors ? 'red' : '');
    const [value, unit] = p99.split('\u00a0');
    tiles.Latency.set(value, `${unit ?? ''} p99`, `p50 ${p50}, p90 ${p90}${s.latency.replica && !fleet.chosen ? `, the slowest replica, ${s.latency.replica}` : ''}`);
    age.textContent = s.rules.loaded ? `${span((Date.parse(s.now) - Date.parse(s.rules.loaded)) / 1000)} ago` : '';
    drawTiles();
    if (range === '15m') draw(live.history);
    // The lists are made anew only if they change, so that a selected text stays selected.
    const tells = JSON.stringify([s.store, s.rules, s.replicas, s.replica_count]);
    if (tells !== told) {
      told = tells;
      fill(servers, storeList(s.store));
      fill(force, rulesList(s.rules, age));
      fill(others, replicaList(s));
    }
  });

  // shown is the number of values of a history that are not older than the process, at least 120.
  function shown(h) {
    const age = h.until - Date.parse(live.status.started) / 1000;
    return Math.min(Math.max(120, Math.ceil(age / h.step) + 1), h.requests.length);
  }

  function drawTiles() {
    const h = live.history;
    if (!h) return;
    const n = shown(h);
    const size = Math.ceil(n / sparks);
    const joined = (column, join) => Array.from({ length: Math.ceil(n / size) }, (_, i) => column.slice(-n).slice(i * size, (i + 1) * size).reduce((a, b) => join(a, b ?? 0), 0));
    const [all, denied, errors] = [h.requests, h.denied, h.errors].map((column) => joined(column, (a, b) => a + b));
    tiles.Requests.past(all, (v) => `${rate(v / size)} a second`);
    tiles.Denied.past(all.map((v, i) => (v ? (100 * denied[i]) / v : 0)), (v) => percent(v, 100));
    tiles.Errors.past(errors, (v) => `${rate(v / size)} a second`);
    tiles.Latency.past(joined(h.p99, Math.max), (v) => latency(v / 1e6));
  }

  function draw(h) {
    if (!h || !live.status) return;
    const n = shown(h);
    const newest = (column) => column.slice(-n);
    const each = (column) => newest(column).map((v) => (v === null ? null : v / h.step));
    const none = (column) => newest(column).map((v) => v || null); // 0: nothing was measured
    const at = newest(h.requests).map((_, i) => h.until - (n - 1 - i) * h.step);
    requests.set(at, [each(h.requests), each(h.denied), each(h.errors)]);
    times.set(at, [none(h.p50), none(h.p99)]);
  }

  // choose shows another range. The stream has the shortest one.
  function choose(value) {
    range = value;
    for (const c of choices) c.setAttribute('aria-pressed', String(c.value === value));
    history.replaceState(null, '', value === '15m' ? '#now' : `#now?range=${value}`);
    follow();
  }

  let later = 0;
  async function follow() {
    clearTimeout(later);
    const mine = range;
    if (mine === '15m') return draw(live.history);
    const h = document.hidden ? null : columnsOf((await get(scoped('/v1/status', { range })).catch(() => ({}))).history);
    if (mine !== range || !main.contains(traffic)) return;
    if (h) draw(h);
    later = setTimeout(follow, 1000 * (h?.step ?? 4));
  }
  follow();

  let toldEvents = '';
  async function load() {
    if (document.hidden) return;
    const events = (await get(scoped('/v1/history', { since: '24h', n: 100 })).catch(() => ({}))).events;
    const text = JSON.stringify(events);
    if (!events || text === toldEvents || !main.contains(happened)) return;
    toldEvents = text;
    fill(happened, events.length ? events.map(line) : el('li', { className: 'hint' }, 'Nothing has happened.'));
    for (const c of [requests, times]) c.mark(events.map((e) => ({ at: Date.parse(e.time) / 1000, colour: marks[e.kind] ?? '--dim', text: `${moment(e.time)} ${textOf(e)}` })));
  }
  load();
  const again = setInterval(load, eventsEvery);

  return () => {
    clearInterval(again);
    clearTimeout(later);
    range = '';
    end();
    requests.end();
    times.end();
  };
}

function storeList(store) {
  if (!store.servers.length) {
    return el('p', { className: 'hint' }, store.backend === 'memory'
      ? 'Counters are in the memory of this process: nothing can be away, and they end with it.'
      : 'No server has been asked so far.');
  }
  return el('ul', { className: 'plain' }, store.servers.map((s) => el('li', { className: 'server', 'data-state': s.breaker },
    el('span', { className: 'dot', 'aria-hidden': 'true' }), el('code', {}, visible(s.address)), ' ', breakers[s.breaker] ?? s.breaker,
    el('span', { className: 'dim' }, ` · ${s.role}, breaker ${s.breaker}`))));
}

function rulesList(r, age) {
  const row = (name, ...value) => [el('dt', {}, name), el('dd', {}, value)];
  return [
    el('dl', {},
      row('From', r.source === 'xds' ? 'management server ' : 'files in ', el('code', {}, visible(r.path))),
      row('Loaded', r.loaded ? [`${moment(r.loaded)}, `, age] : 'never'),
      row('Hash', el('code', {}, r.hash || '–')),
      row('Size', `${count(r.rules)} ${r.rules === 1 ? 'rule' : 'rules'} in ${count(r.domains)} ${r.domains === 1 ? 'domain' : 'domains'}`),
      row('Warnings', r.warnings.length ? count(r.warnings.length) : 'none')),
    r.refused && el('div', { className: 'notice' }, el('b', {}, 'The newest rules were refused:'), el('pre', {}, visibleLines(r.refused))),
    r.warnings.length > 0 && el('ul', { className: 'warnings' }, r.warnings.map((w) => el('li', {}, visible(w)))),
  ];
}

const visibleLines = (text) => text.split('\n').map(visible).join('\n');

// replicaList says how many replicas there are, and since when they run.
function replicaList(s) {
  const row = (name, ...value) => [el('dt', {}, name), el('dd', {}, value)];
  const n = s.replicas ? `${count(s.replicas.filter((r) => r.ok).length)} of ${count(s.replicas.length)} answer`
    : s.replica_count ? count(s.replica_count) : s.store.backend === 'memory' ? '1, which counts alone' : 'not known: set REPLICAS or REPLICAS_DNS';
  return [el('dl', {}, row('Number', n), row('Since', moment(s.started)), row('Version', visible(s.version || '?'))),
    s.replicas && el('ul', { className: 'plain' }, s.replicas.map((r) => el('li', { className: 'server', 'data-state': r.ok ? 'closed' : 'open' },
      el('span', { className: 'dot', 'aria-hidden': 'true' }), el('code', {}, visible(r.address)), ' ', r.ok ? 'answers' : 'does not answer', el('span', { className: 'dim' }, ' ', visible(r.error || r.name || '')))))];
}
