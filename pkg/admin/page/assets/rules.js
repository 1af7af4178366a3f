// Rules: the tree with its limits in words and its traffic.

import { el, fill, field, table, cell, visible, alertBox } from './dom.js';
import { get } from './api.js';
import { live, watch } from './live.js';
import { sparkline } from './chart.js';
import { below, count, percent, rate } from './format.js';

const most = 300; // rows that are drawn
const everyBin = 15000; // ms; sparklines get a new point so often

const columns = {
  rule: { name: 'Rule' },
  limits: { name: 'Limits' },
  rate: { name: 'Requests', num: true },
  denied: { name: 'Denied', num: true },
  history: { name: 'Last 15 min' },
  place: { name: 'Place' },
};

export function rules(main, params) {
  const { input, row } = field('Search', { id: 'search', type: 'search', placeholder: 'rule, key, value, limit or file', value: params.get('search') ?? '' });
  const found = el('p', { className: 'hint', role: 'status' });
  const list = el('div');
  const { box, say } = alertBox();
  main.append(el('h1', {}, 'Rules'), el('form', { className: 'tools', role: 'search', onsubmit: (e) => e.preventDefault() }, row, found), box, list);

  let all = null; // of the server
  let asking = false;
  let failed = false; // the last time
  let cells = new Map(); // by rule, the cells that change each second

  async function load() {
    if (asking || document.hidden) return;
    asking = true;
    try {
      all = await get('/v1/rules');
      for (const r of all.rules) r.text = [r.rule, `${r.file}:${r.line}`, ...r.entries.map(written), ...r.limits.map((l) => `${l.words} ${l.name ?? ''}`), r.shadow ? 'shadow' : '', r.unlimited ? 'unlimited' : ''].join('\n').toLowerCase();
      say('');
      failed = false;
      draw();
    } catch (e) {
      say(e.message);
      failed = true;
    } finally {
      asking = false;
    }
  }

  function draw() {
    if (!all) return;
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = all.rules.filter((r) => words.every((w) => r.text.includes(w)));
    found.textContent = `${count(hits.length)} of ${count(all.rules.length)} rules` + (hits.length > most ? `, the first ${most} are shown: search for fewer` : '');
    cells = new Map();
    const domains = Map.groupBy ? Map.groupBy(hits.slice(0, most), (r) => r.domain) : grouped(hits.slice(0, most));
    fill(list, [...domains].map(([domain, of]) => el('section', { className: 'card' },
      el('h2', {}, 'Domain ', el('code', {}, visible(domain))),
      table(`Rules of the domain ${domain}`, Object.values(columns), el('tbody', {}, of.map((r, i) => line(r, of[i - 1])))))));
    if (!hits.length) fill(list, el('p', { className: 'hint' }, all.rules.length ? 'No rule matches the search.' : 'No rules are in force.'));
    refresh();
  }

  // line is the row of a rule; entries that it shares with the row above are dimmed.
  function line(r, above) {
    let same = 0;
    while (above && same < r.entries.length - 1 && written(above.entries[same] ?? {}) === written(r.entries[same])) same++;
    const path = r.entries.flatMap((e, i) => [
      i > 0 && el('span', { className: 'dim', 'aria-hidden': 'true' }, ' › '),
      el('span', { className: i < same ? 'dim' : i === r.entries.length - 1 ? 'key' : '' }, visible(written(e))),
    ]);
    const own = {
      rate: cell(columns.rate), denied: cell(columns.denied), rule: r,
    };
    cells.set(r.rule, own);
    return el('tr', { 'data-testid': 'rule' },
      cell(columns.rule, el('div', { className: `way depth-${Math.min(same, 4)}` }, path), el('div', { className: 'small dim' }, visible(r.rule))),
      cell(columns.limits, r.unlimited ? el('div', {}, 'unlimited') : r.limits.map((l) => el('div', {}, visible(l.words), l.name && el('span', { className: 'tag' }, visible(l.name)))),
        r.shadow && el('span', { className: 'tag amber' }, 'shadow: denies nothing'), r.quota && el('span', { className: 'tag' }, 'quota')),
      own.rate, own.denied,
      cell(columns.history, r.history ? sparkline(recent(r.history), recent(r.history_denied), `${count(r.requests)} requests, ${count(r.denied)} denied`) : el('span', { className: 'dim' }, 'no requests')),
      cell(columns.place, el('span', { className: 'small long', title: r.file }, visible(below(live.status?.rules.path, r.line ? `${r.file}:${r.line}` : r.file))),
        el('div', {}, el('a', { className: 'small', href: `#top?rule=${encodeURIComponent(r.rule)}`, 'aria-label': `Top keys of ${visible(r.rule)}` }, 'top keys'))));
  }

  // refresh writes the newest rates. Rules that the event leaves out have none, or are not
  // among the busiest: they keep the rate of the list.
  function refresh() {
    const rates = new Map((live.status?.rates ?? []).map((r) => [r.rule, r]));
    const complete = rates.size < 200;
    for (const [name, { rate: requests, denied, rule }] of cells) {
      const r = rates.get(name) ?? (complete && live.status ? { rate: 0, denied: 0 } : { rate: rule.rate, denied: rule.denied_rate });
      if (rule.unlimited) {
        requests.textContent = denied.textContent = '–';
        requests.title = denied.title = 'Requests without a limit are not counted by rule.';
        continue;
      }
      requests.textContent = `${rate(r.rate)}/s`;
      denied.textContent = `${percent(rule.denied, rule.requests)}`;
      denied.title = `${count(rule.denied)} of ${count(rule.requests)} requests in the last 15 minutes; now ${rate(r.denied)}/s`;
      denied.classList.toggle('hot', rule.denied > 0);
    }
  }

  let hash = live.status?.rules.hash;
  const end = watch((s) => {
    if (s.rules.hash !== hash || failed) {
      hash = s.rules.hash;
      load();
    }
    refresh();
  });
  input.oninput = draw;
  load();
  const again = setInterval(() => (all?.rules.length ?? 0) <= 2000 && load(), everyBin);
  return () => {
    end();
    clearInterval(again);
  };
}

// recent leaves out what was before the start of the process, but shows two minutes at
// least. After a minute the newest point is left out, too, because its time is not over.
function recent(points) {
  const s = live.status;
  const age = s ? (Date.parse(s.now) - Date.parse(s.started)) / 1000 : Infinity;
  const shown = points.slice(-Math.min(Math.max(9, Math.ceil(age / 15) + 1), points.length));
  return age > 60 ? shown.slice(0, -1) : shown;
}

const written = (e) => (e.value ? `${e.key}=${e.value}` : `${e.key}`);

function grouped(list) {
  const groups = new Map();
  for (const r of list) groups.set(r.domain, [...(groups.get(r.domain) ?? []), r]);
  return groups;
}
