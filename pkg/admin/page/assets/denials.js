// Denials: who was denied, and the last requests that were denied, as they come.

import { el, fill, field, table, cell, visible, alertBox } from './dom.js';
import { events, fleet, get, scoped } from './api.js';
import { count, moment, seconds, span, spoken, whyOf, writeDescriptor } from './format.js';

const shown = 200; // rows
const every = 2000; // ms between two answers of a fleet; one replica streams its denials
const afresh = 30000; // ms after which a stream begins anew, in case it missed some
const drawEvery = 250; // ms

const grouped = {
  last: { name: 'Last' },
  first: { name: 'First' },
  key: { name: 'Descriptor' },
  limit: { name: 'Limit' },
  count: { name: 'Denials', num: true },
  wait: { name: 'Wait', num: true },
};
const columns = {
  time: { name: 'Time' },
  key: { name: 'Descriptor' },
  limit: { name: 'Limit' },
  cost: { name: 'Cost', num: true },
  wait: { name: 'Wait', num: true },
  by: { name: 'Decided by' },
};

export function denials(main, params) {
  const { input: search, row } = field('Search', { id: 'search', type: 'search', placeholder: 'part of a key or value', value: params.get('q') ?? '' });
  const { input: rule, row: ruleRow } = field('Rule', { id: 'rule', placeholder: 'all rules', value: params.get('rule') ?? '' });
  const show = el('select', { id: 'show' }, el('option', { value: '' }, 'grouped'), el('option', { value: 'all', selected: params.has('all') }, 'each denial'));
  const pause = el('button', { type: 'button', className: 'quiet', onclick: () => hold(!paused) }, 'Pause');
  const about = el('p', { className: 'hint', role: 'status' }, ' ');
  let body = el('tbody');
  const rows = el('div');
  const none = el('p', { className: 'hint', hidden: true }, 'No denials.');
  const { box, say } = alertBox();
  main.append(el('h1', {}, 'Denials'),
    el('form', { className: 'tools', role: 'search', 'aria-label': 'Search denials', onsubmit: (e) => { e.preventDefault(); changed(); } },
      row, ruleRow, el('div', { className: 'field narrow' }, el('label', { htmlFor: 'show' }, 'Show'), show), el('div', { className: 'actions' }, pause), about),
    box, el('section', { className: 'card' }, rows, none));
  // head makes the table of groups, or of denials.
  function head() {
    body = el('tbody');
    fill(rows, table('The last denials', Object.values(show.value ? columns : grouped), body));
  }
  head();

  let paused = false;
  let going = new AbortController();
  let kept = { kept: 0, sampled: 1 };
  let drawn = ''; // the groups
  const come = []; // and not drawn

  // asks is the query of the form, with what a stream or a list needs besides.
  const asks = (query) => {
    if (search.value) query.q = search.value;
    if (rule.value.trim()) query.rule = rule.value.trim();
    return query;
  };

  // list draws the last denials, and returns them as JSON.
  async function list(signal) {
    const query = asks({ n: shown });
    if (!show.value) query.group = true;
    const told = await get(scoped('/v1/denials', query), { signal });
    say('');
    kept = told;
    come.length = 0;
    const text = JSON.stringify(told.groups ?? null); // groups that are the same stay, so that a click is not lost
    if (!told.groups || text !== drawn) fill(body, (told.groups ?? []).map(group), (told.denials ?? []).map(line));
    drawn = text;
    tell();
    return new Set((told.denials ?? []).map((d) => JSON.stringify(d)));
  }

  // load draws the last denials and then follows the new ones.
  async function load() {
    going.abort();
    going = new AbortController();
    const { signal } = going;
    clearTimeout(again);
    if (document.hidden) {
      again = setTimeout(load, every);
      return;
    }
    try {
      await list(signal);
    } catch (e) {
      if (e.name === 'AbortError') return;
      say(e.message);
      if (e.status === 501) return;
    }
    if (signal.aborted || paused) return;
    again = setTimeout(load, fleet.on || !show.value ? every : afresh);
    if (fleet.on || !show.value) return;
    // A stream has the denials that come after it opened. It opens after the list was made, so the
    // list is made again, and what both have is drawn once.
    let listed = new Set();
    const heard = (d) => listed.delete(JSON.stringify(d)) || come.push(d);
    events(`/v1/denials?${new URLSearchParams(asks({ follow: true }))}`, heard, signal, async () => { listed = await list(signal); });
  }

  // add draws the denials that have come since.
  function add() {
    if (!come.length) return;
    const newest = come.splice(0).slice(-shown).reverse();
    kept.sampled = Math.max(kept.sampled, ...newest.map((d) => d.sampled ?? 1));
    body.prepend(...newest.map(line));
    while (body.childElementCount > shown) body.lastElementChild.remove();
    tell();
  }
  const drawing = setInterval(add, drawEvery);

  function tell() {
    none.hidden = body.childElementCount > 0;
    about.textContent = (paused ? 'Paused. ' : '') + (kept.from ? `Kept since ${moment(kept.from)}.` : '') +
      (kept.sampled > 1 ? ` Too many came to keep each: a row stands for up to ${count(kept.sampled)}.` : '');
  }

  function hold(is) {
    paused = is;
    pause.textContent = is ? 'Resume' : 'Pause';
    if (is) {
      clearTimeout(again);
      going.abort();
      tell();
    } else {
      load();
    }
  }

  function changed() {
    const query = new URLSearchParams();
    if (search.value) query.set('q', search.value);
    if (rule.value.trim()) query.set('rule', rule.value.trim());
    if (show.value) query.set('all', '');
    history.replaceState(null, '', query.size ? `#denials?${query}` : '#denials');
    load();
  }
  let again = 0;
  let typed = 0;
  search.oninput = () => {
    clearTimeout(typed);
    typed = setTimeout(changed, 150); // ms without another key
  };
  rule.onchange = changed;
  show.onchange = () => {
    head();
    drawn = '';
    changed();
  };
  const seen = () => paused || load();
  document.addEventListener('visibilitychange', seen);
  load();
  return () => {
    document.removeEventListener('visibilitychange', seen);
    clearInterval(drawing);
    clearTimeout(again);
    clearTimeout(typed);
    going.abort();
  };
}

const time = (at) => el('time', { dateTime: at, title: at }, moment(at));
const limitOf = (d) => [visible(spoken(d.words)), ' ', d.name && el('span', { className: 'tag' }, visible(d.name)),
  d.plan && el('span', { className: 'tag', 'data-testid': 'plan' }, `plan ${visible(d.plan)}`)];
const keyOf = (d) => el('a', { className: 'long key', href: whyOf(d.domain, d.entries ?? []), title: 'Why?' }, visible(writeDescriptor(d.entries ?? [])));

const group = (g) => el('tr', { 'data-testid': 'denial' },
  cell(grouped.last, time(g.last)), cell(grouped.first, time(g.first)),
  cell(grouped.key, keyOf(g), el('div', { className: 'small dim long' }, visible(g.rule ?? ''))),
  cell(grouped.limit, limitOf(g)), cell(grouped.count, count(g.count ?? 0)), cell(grouped.wait, g.wait ? span(seconds(g.wait)) : '–'));

function line(d) {
  return el('tr', { 'data-testid': 'denial' },
    cell(columns.time, time(d.time), d.sampled > 1 && el('div', { className: 'small dim' }, `${count(d.sampled)} like it`)),
    cell(columns.key, keyOf(d), el('div', { className: 'small dim long' }, visible(d.rule ?? ''), d.replica && ` · ${visible(d.replica)}`)),
    cell(columns.limit, limitOf(d), d.shadow && el('span', { className: 'tag amber' }, 'shadow: answered OK')),
    cell(columns.cost, count(d.cost ?? 0)),
    cell(columns.wait, d.retry_after ? span(seconds(d.retry_after)) : '–'),
    cell(columns.by, d.policy === 'counted' || !d.policy ? 'the store' : `on_error: ${visible(d.policy)}`));
}
