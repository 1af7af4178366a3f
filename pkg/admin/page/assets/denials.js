// Denials: the last requests that were denied, as they come.

import { el, fill, field, table, cell, visible, alertBox } from './dom.js';
import { events, fleet, get, scoped } from './api.js';
import { count, moment, seconds, span, whyOf, writeDescriptor } from './format.js';

const shown = 200; // rows
const every = 2000; // ms between two answers of a fleet; one replica streams its denials
const afresh = 30000; // ms after which a stream begins anew, in case it missed some
const drawEvery = 250; // ms

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
  const pause = el('button', { type: 'button', className: 'quiet', onclick: () => hold(!paused) }, 'Pause');
  const about = el('p', { className: 'hint', role: 'status' }, ' ');
  const body = el('tbody');
  const none = el('p', { className: 'hint', hidden: true }, 'No denials.');
  const { box, say } = alertBox();
  main.append(el('h1', {}, 'Denials'),
    el('form', { className: 'tools', role: 'search', 'aria-label': 'Search denials', onsubmit: (e) => { e.preventDefault(); changed(); } },
      row, ruleRow, el('div', { className: 'actions' }, pause), about),
    box, el('section', { className: 'card' }, table('The last denials', Object.values(columns), body), none));

  let paused = false;
  let going = new AbortController();
  let kept = { kept: 0, sampled: 1 };
  const come = []; // and not drawn

  // asks is the query of the form, with what a stream or a list needs besides.
  const asks = (query) => {
    if (search.value) query.q = search.value;
    if (rule.value.trim()) query.rule = rule.value.trim();
    return query;
  };

  // list draws the last denials, and returns them as JSON.
  async function list(signal) {
    const told = await get(scoped('/v1/denials', asks({ n: shown })), { signal });
    say('');
    kept = told;
    come.length = 0;
    fill(body, (told.denials ?? []).map(line));
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
    again = setTimeout(load, fleet.on ? every : afresh);
    if (fleet.on) return;
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

function line(d) {
  const entries = d.entries ?? [];
  return el('tr', { 'data-testid': 'denial' },
    cell(columns.time, el('time', { dateTime: d.time, title: d.time }, moment(d.time)), d.sampled > 1 && el('div', { className: 'small dim' }, `${count(d.sampled)} like it`)),
    cell(columns.key, el('a', { className: 'long key', href: whyOf(d.domain, entries), title: 'Why?' }, visible(writeDescriptor(entries))),
      el('div', { className: 'small dim long' }, visible(d.rule ?? ''), d.replica && ` · ${visible(d.replica)}`)),
    cell(columns.limit, visible(d.words), ' ', d.name && el('span', { className: 'tag' }, visible(d.name)),
      d.plan && el('span', { className: 'tag', 'data-testid': 'plan' }, `plan ${visible(d.plan)}`),
      d.shadow && el('span', { className: 'tag amber' }, 'shadow: answered OK')),
    cell(columns.cost, count(d.cost ?? 0)),
    cell(columns.wait, d.retry_after ? span(seconds(d.retry_after)) : '–'),
    cell(columns.by, d.policy === 'counted' || !d.policy ? 'the store' : `on_error: ${visible(d.policy)}`));
}
