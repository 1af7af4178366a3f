// Rules: the tree with its limits in words and its traffic.

import { el, fill, field, overlaid, table, cell, visible, alertBox } from './dom.js';
import { get, scoped } from './api.js';
import { live, watch } from './live.js';
import { sparkline } from './chart.js';
import { below, count, percent, rate, spoken } from './format.js';

const size = 300; // of a page
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
  const previous = el('button', { type: 'button', className: 'quiet', onclick: () => turn(-size) }, 'Previous');
  const next = el('button', { type: 'button', className: 'quiet', onclick: () => turn(size) }, 'Next');
  const pages = el('div', { className: 'actions', hidden: true }, previous, next);
  main.append(el('h1', {}, 'Rules'), el('form', { className: 'tools', role: 'search', 'aria-label': 'Search rules', onsubmit: (e) => e.preventDefault() }, row, found), box, list, pages);

  let all = null; // the page that is shown
  let offset = 0; // of its first rule
  let going = null;
  let failed = false; // the last time
  let cells = new Map(); // by rule, the cells that change each second

  async function load() {
    if (document.hidden) return;
    going?.abort();
    going = new AbortController();
    try {
      all = await get(scoped('/v1/rules', { q: input.value, n: size, offset }), { signal: going.signal });
      say('');
      failed = false;
      if (offset && !all.rules.length) turn(-offset); // there are fewer rules now
      else draw();
    } catch (e) {
      if (e.name === 'AbortError') return;
      say(e.message);
      failed = true;
    }
  }

  function turn(by) {
    offset = Math.max(0, offset + by);
    load();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  function draw() {
    const end = offset + all.rules.length;
    pages.hidden = all.matched <= size;
    previous.disabled = offset === 0;
    next.disabled = end >= all.matched;
    found.textContent = `${count(all.matched)} of ${count(all.total)} rules` + (pages.hidden || !all.rules.length ? '' : `, ${count(offset + 1)} to ${count(end)} are shown`);
    cells = new Map();
    const domains = Map.groupBy ? Map.groupBy(all.rules, (r) => r.domain) : grouped(all.rules);
    fill(list, [...domains].map(([domain, of]) => el('section', { className: 'card' },
      el('h2', {}, 'Domain ', el('code', {}, visible(domain))),
      table(`Rules of the domain ${domain}`, Object.values(columns), el('tbody', {}, of.map((r, i) => line(r, of[i - 1])))))));
    if (all.differ) list.prepend(el('p', { className: 'notice', 'data-testid': 'differ' }, 'The replicas have different rules in force: ',
      all.replicas.map((r) => el('div', {}, el('code', {}, visible(r.hash || '–')), ' ', visible(r.name || r.address)))));
    if (!all.rules.length) fill(list, el('p', { className: 'hint' }, all.total ? 'No rule matches the search.' : 'No rules are in force.'));
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
    cells.set(nameOf(r.rule, r.by_row && r.plan), own);
    return el('tr', { 'data-testid': 'rule' },
      cell(columns.rule, el('div', { className: `way depth-${Math.min(same, 4)}` }, path), el('div', { className: 'small dim' }, visible(r.rule))),
      cell(columns.limits, r.unlimited ? el('div', {}, 'unlimited') : r.limits.map((l) => el('div', {}, visible(spoken(l.words)), ' ', l.name && el('span', { className: 'tag' }, visible(l.name)), overlaid(l),
        l.policy_decides && el('span', { className: 'tag amber' }, `policy ${l.on_error} decides now${l.policy_decides === 'some' ? ' for some keys' : ''}`))),
        r.table && el('span', { className: 'tag', 'data-testid': 'table', title: r.table }, `table ${visible(below(live.status?.rules.path, r.table))}`,
          !r.by_row && `, ${count(r.rows ?? 0)} ${r.rows === 1 ? 'row' : 'rows'}`), ' ',
        r.plan && el('span', { className: 'tag', 'data-testid': 'plan' }, `plan ${visible(r.plan)}`),
        r.shadow && el('span', { className: 'tag amber' }, 'shadow: denies nothing'), r.quota && el('span', { className: 'tag' }, 'quota'), r.pool && el('span', { className: 'tag' }, 'pool')),
      own.rate, own.denied,
      cell(columns.history, r.history ? sparkline(recent(r.history), recent(r.history_denied), `${count(r.requests)} requests, ${count(r.denied)} denied`) : el('span', { className: 'dim' }, 'no requests')),
      cell(columns.place, el('span', { className: 'small long', title: r.file }, visible(below(live.status?.rules.path, r.line ? `${r.file}:${r.line}` : r.file))),
        !r.pool && el('div', {}, el('a', { className: 'small', href: `#top?rule=${encodeURIComponent(r.rule)}`, 'aria-label': `Top keys of ${visible(r.rule)}` }, 'top keys'))));
  }

  // refresh writes the newest rates. Rules that the event leaves out have none, or are not
  // among the busiest: they keep the rate of the list.
  function refresh() {
    const rates = new Map((live.status?.rates ?? []).map((r) => [nameOf(r.rule, r.plan), r]));
    const complete = live.status?.rates && rates.size < 200; // answers of a fleet have none
    for (const [name, { rate: requests, denied, rule }] of cells) {
      const r = rates.get(name) ?? (complete ? { rate: 0, denied: 0 } : { rate: rule.rate, denied: rule.denied_rate });
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

  const shown = (s) => `${s?.rules.hash} ${s?.store.policy_decides}`; // what the list depends on
  let seen = shown(live.status);
  const end = watch((s) => {
    if (shown(s) !== seen || failed) {
      seen = shown(s);
      load();
    }
    refresh();
  });
  let typed = 0;
  input.oninput = () => {
    clearTimeout(typed);
    typed = setTimeout(() => { offset = 0; load(); }, 150); // ms without another key
  };
  load();
  const again = setInterval(load, everyBin);
  return () => {
    end();
    clearInterval(again);
    clearTimeout(typed);
    going?.abort();
  };
}

// recent leaves out the time before the start of the process, but shows two minutes at
// least. After a minute the newest point is left out, too, because its time is not over.
function recent(points) {
  const s = live.status;
  const age = s ? (Date.parse(s.now) - Date.parse(s.started)) / 1000 : Infinity;
  const shown = points.slice(-Math.min(Math.max(9, Math.ceil(age / 15) + 1), points.length));
  return age > 60 ? shown.slice(0, -1) : shown;
}

// nameOf is a rule, or the part of it to which rows of its table give a plan.
const nameOf = (rule, plan) => JSON.stringify([rule, plan || '']);

const written = (e) => (e.value ? `${e.key}${/^~(not:)?[a-z]+(\/i)?:/.test(e.value) ? '' : '='}${e.value}` : `${e.key}`);

function grouped(list) {
  const groups = new Map();
  for (const r of list) groups.set(r.domain, [...(groups.get(r.domain) ?? []), r]);
  return groups;
}
