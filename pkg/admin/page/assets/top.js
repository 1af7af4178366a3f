// Top: the callers that were denied, or that asked, most.

import { el, fill, field, table, cell, visible, alertBox } from './dom.js';
import { get, scoped } from './api.js';
import { count, percent, rate, seconds, span, spoken, whyOf, writeDescriptor } from './format.js';

const every = 2000; // ms

const orders = { denied: 'most denied', hits: 'most hits', cost: 'highest cost' };
const columns = {
  key: { name: 'Descriptor' },
  rule: { name: 'Rule and limit' },
  left: { name: 'Remaining', num: true },
  denied: { name: 'Denied', num: true },
  share: { name: 'of hits', num: true },
  hits: { name: 'Hits', num: true },
  cost: { name: 'Cost', num: true },
  rate: { name: 'Rate', num: true },
};

export function top(main, params) {
  const by = el('select', { id: 'by' }, Object.entries(orders).map(([value, name]) => el('option', { value, selected: params.get('by') === value }, name)));
  const { input: rule, row } = field('Rule', { id: 'rule', value: params.get('rule') ?? '', placeholder: 'all rules', list: 'rule-names' });
  const names = el('datalist', { id: 'rule-names' });
  const about = el('p', { className: 'hint' }, ' ');
  const body = el('tbody');
  const none = el('p', { className: 'hint', hidden: true });
  const { box, say } = alertBox();
  main.append(el('h1', {}, 'Top'),
    el('form', { className: 'tools', onsubmit: (e) => { e.preventDefault(); changed(); } },
      el('div', { className: 'field narrow' }, el('label', { htmlFor: 'by' }, 'Order'), by), row, names, about),
    box, el('section', { className: 'card' }, table('The descriptors at the top', Object.values(columns), body), none));

  let going = null;
  async function load() {
    if (document.hidden) return;
    going?.abort();
    going = new AbortController();
    const query = { by: by.value, n: 50 };
    if (rule.value.trim()) query.rule = rule.value.trim();
    try {
      draw(await get(scoped('/v1/top', query), { signal: going.signal }));
      say('');
    } catch (e) {
      if (e.name !== 'AbortError') say(e.message);
    }
  }

  function draw(t) {
    const rows = t.rows ?? [];
    const total = t.total ?? {};
    about.textContent = `In the last ${span(seconds(t.window))}: ${count(total.hits ?? 0)} hits, ${count(total.denied ?? 0)} denied.` +
      (t.error ? ` Counts are estimates, at most ${count(t.error)} too high.` : '');
    // A row keeps its link while its key is shown, so that a click or the focus is not lost
    // when the order changes.
    const most = Math.max(1, ...rows.map((r) => r[by.value] ?? 0));
    const before = new Map([...body.children].map((r) => [r.dataset.id, r]));
    const next = rows.map((r) => {
      const id = `${r.rule} ${writeDescriptor(r.entries ?? [])}`;
      const tr = before.get(id) ?? line(r, id);
      const set = (name, text) => { tr.querySelector(`.${name}`).textContent = text; };
      set('v-envoys', r.buckets ? ` ${count(r.buckets)} buckets of Envoys, assigned ${rate(r.assigned ?? 0)}/s` : '');
      tr.querySelector('.used').style.width = `${(100 * (r[by.value] ?? 0)) / most}%`;
      set('v-limit', r.limit ? ` · ${visible(spoken(r.limit))}` : '');
      set('v-left', r.remaining === undefined || r.remaining === null ? '–' : count(r.remaining));
      tr.querySelector('.v-left').classList.toggle('hot', r.remaining === 0);
      set('v-denied', count(r.denied ?? 0));
      set('v-share', percent(r.denied ?? 0, r.hits ?? 0));
      set('v-hits', count(r.hits ?? 0));
      set('v-cost', count(r.cost ?? 0));
      set('v-rate', `${rate(r.rate ?? 0)}/s`);
      return tr;
    });
    const focused = document.activeElement;
    if (next.some((tr, i) => tr !== body.children[i]) || next.length !== body.children.length) fill(body, next);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
    none.hidden = rows.length > 0;
    none.textContent = by.value === 'denied' ? 'Nobody was denied.' : 'No requests.';
  }

  function line(r, id) {
    const entries = r.entries ?? [];
    const text = entries.map((e) => (e.value ? `${e.key}=${e.value}` : e.key)).join(',');
    const numbers = ['left', 'denied', 'share', 'hits', 'cost', 'rate'].map((name) => {
      const td = cell(columns[name]);
      td.classList.add(`v-${name}`);
      return td;
    });
    return el('tr', { 'data-testid': 'top-row', 'data-id': id },
      cell(columns.key, el('a', { className: 'long key', href: whyOf(r.domain, entries), title: 'Why?' }, visible(text)), el('div', { className: 'meter small', 'aria-hidden': 'true' }, el('div', { className: 'used' }))),
      cell(columns.rule, el('span', { className: 'small' }, visible(r.rule ?? '')), el('span', { className: 'small dim v-limit' }), el('span', { className: 'small v-envoys' })), numbers);
  }

  function changed() {
    const query = new URLSearchParams();
    if (by.value !== 'denied') query.set('by', by.value);
    if (rule.value.trim()) query.set('rule', rule.value.trim());
    history.replaceState(null, '', query.size ? `#top?${query}` : '#top');
    load();
  }
  by.onchange = rule.onchange = changed;
  get('/v1/rules').then((l) => fill(names, [...new Set(l.rules.map((r) => r.rule))].slice(0, 1000).map((value) => el('option', { value })))).catch(() => {});
  load();
  const again = setInterval(load, every);
  return () => {
    clearInterval(again);
    going?.abort();
  };
}
