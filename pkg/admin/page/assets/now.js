// Now: is all well, and what does the process do?

import { el, fill, visible } from './dom.js';
import { fleet, get, scoped } from './api.js';
import { live, watch } from './live.js';
import { chart } from './chart.js';
import { happened as line, told as textOf } from './events.js';
import { count, latency, moment, percent, rate, seconds, short, span } from './format.js';

const headlines = { ok: 'All well', warning: 'Attention', critical: 'Action needed' };
const eventsEvery = 5000; // ms between two answers
// The colours of the marks that events leave in the charts.
const marks = { 'store-away': '--red', 'store-back': '--green', 'rules-refused': '--amber', 'rules-loaded': '--violet' };
const breakers = { closed: 'answers', 'half-open': 'is being tried', open: 'is away' };

// tile is a number with its name: {box, set(value, unit, note, state)}.
function tile(name) {
  const value = el('span', { className: 'value' }, '–');
  const unit = el('span', { className: 'unit' });
  const note = el('div', { className: 'note' });
  const box = el('div', { className: 'tile', role: 'group', 'aria-label': name }, el('h2', {}, name), el('div', {}, value, ' ', unit), note);
  return {
    box,
    set(v, u, n, state = '') {
      value.textContent = v;
      unit.textContent = u;
      note.textContent = n;
      box.dataset.state = state;
    },
  };
}

export function now(main) {
  const headline = el('p', { className: 'headline' }, 'Waiting for the first news…');
  const summary = el('p', { className: 'summary' });
  const reasons = el('ul', { className: 'reasons' });
  const banner = el('section', { className: 'banner', 'data-testid': 'banner', 'aria-label': 'State' }, headline, summary, reasons);
  const tiles = Object.fromEntries(['Requests', 'Denied', 'Errors', 'Latency', 'Store', 'Rules', 'Replicas'].map((n) => [n, tile(n)]));
  const traffic = el('div', { className: 'chart' });
  const took = el('div', { className: 'chart' });
  const servers = el('div');
  const force = el('div');
  const age = el('span', { className: 'num' });
  const happened = el('ol', { className: 'plain events', tabIndex: 0, 'aria-label': 'Events, the newest first' });
  const kinds = el('div', { className: 'hint', 'data-testid': 'errors-by-kind' });
  main.append(
    el('h1', {}, 'Now'), banner,
    el('section', { className: 'tiles', 'aria-label': 'Figures' }, Object.values(tiles).map((t) => t.box)),
    el('section', { className: 'card' }, el('h2', {}, 'Requests a second, last 15 minutes'), traffic, kinds),
    el('section', { className: 'card' }, el('h2', {}, 'Time to answer, last 15 minutes'), took),
    el('section', { className: 'card' }, el('h2', {}, 'Events of the last day'), happened),
    el('div', { className: 'pair' },
      el('section', { className: 'card' }, el('h2', {}, 'Store'), servers),
      el('section', { className: 'card' }, el('h2', {}, 'Rules in force'), force)));

  const requests = chart(traffic, {
    label: 'Requests, denials and errors a second', axis: short,
    lines: [
      { label: 'requests', colour: '--blue', fill: '--blue-soft', value: (v) => `${count(v)}/s` },
      { label: 'denied', colour: '--amber', fill: '--amber-soft', value: (v) => `${count(v)}/s` },
      { label: 'errors', colour: '--red', value: (v) => `${count(v)}/s` },
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
    const t = s.traffic;
    const [p50, p90, p99] = ['p50', 'p90', 'p99'].map((p) => latency(seconds(s.latency[p])));
    fill(kinds, errorKinds(t));
    summary.textContent = `${rate(t.requests)} requests a second, ${t.requests ? percent(t.denied, t.requests) : 'none'} denied, 99 of 100 answered within ${p99}`;
    tiles.Requests.set(rate(t.requests), '/s', `${short(t.total.requests)} since ${moment(s.started)}`);
    tiles.Denied.set(rate(t.denied), '/s', `${percent(t.denied, t.requests)} of requests`, t.denied ? 'amber' : '');
    tiles.Errors.set(rate(t.errors), '/s', `${short(t.total.errors)} since the start`, t.errors ? 'red' : '');
    const [value, unit] = p99.split('\u00a0');
    tiles.Latency.set(value, `${unit ?? ''} p99`, `p50 ${p50}, p90 ${p90}${s.latency.replica && !fleet.chosen ? `, the slowest replica, ${s.latency.replica}` : ''}`);
    tiles.Store.set(s.store.state, '', storeNote(s.store), { away: 'red', degraded: 'amber' }[s.store.state]);
    tiles.Rules.set(count(s.rules.rules), s.rules.rules === 1 ? 'rule' : 'rules',
      s.rules.loaded ? `in force for ${span((Date.parse(s.now) - Date.parse(s.rules.loaded)) / 1000)}` : 'none in force',
      s.rules.refused ? 'amber' : s.rules.loaded ? '' : 'red');
    const up = `up ${span((Date.parse(s.now) - Date.parse(s.started)) / 1000)}, version ${s.version || '?'}`;
    if (s.store.backend === 'memory' && !s.replicas) tiles.Replicas.set('1', '', `counts alone; ${up}`);
    else if (s.replicas) tiles.Replicas.set(count(s.replicas.filter((r) => r.ok).length), `of ${count(s.replicas.length)}`, s.differ ? 'their rules differ' : 'all have the same rules', s.differ || s.replicas.some((r) => !r.ok) ? 'amber' : '');
    else tiles.Replicas.set(s.replica_count ? count(s.replica_count) : '?', '', s.replica_count ? up : 'not known: set REPLICAS or REPLICAS_DNS');
    age.textContent = s.rules.loaded ? `${span((Date.parse(s.now) - Date.parse(s.rules.loaded)) / 1000)} ago` : '';
    draw();
    // The lists are made anew only if they change, so that a selected text stays selected.
    const tells = JSON.stringify([s.store, s.rules]);
    if (tells !== told) {
      told = tells;
      fill(servers, storeList(s.store));
      fill(force, rulesList(s.rules, age));
    }
  });

  function draw() {
    const h = live.history;
    if (!h) return;
    // Seconds before the start of the process are left out, but two minutes are shown.
    const age = h.until - Date.parse(live.status.started) / 1000;
    const shown = Math.min(Math.max(120, Math.ceil(age) + 1), h.requests.length);
    const at = Array.from({ length: shown }, (_, i) => h.until - shown + 1 + i);
    const newest = (column) => column.slice(-shown);
    const none = (column) => newest(column).map((v) => v || null); // 0: nothing was measured
    requests.set(at, [newest(h.requests), newest(h.denied), newest(h.errors)]);
    times.set(at, [none(h.p50), none(h.p99)]);
  }

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
    end();
    requests.end();
    times.end();
  };
}

function storeNote(store) {
  if (!store.servers.length) return `${store.backend}, in this process`;
  const away = store.servers.filter((s) => s.breaker !== 'closed').length;
  const all = `${store.servers.length} ${store.servers.length === 1 ? 'server' : 'servers'}`;
  return `${store.backend}, ${away ? `${away} of ${all} away` : all}`;
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

// errorKinds says which errors there were.
function errorKinds(traffic) {
  const all = Object.entries(traffic.errors_by_kind ?? {}).filter(([, e]) => e.total > 0);
  return all.length > 0 && ['Errors since the start: ', all.map(([kind, e]) => `${count(e.total)} ${kind.replaceAll('_', ' ')}`).join(', ')];
}
