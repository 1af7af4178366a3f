// Find a customer: why it is denied, and the rules that could apply.

import { el, fill, visible, alertBox } from './dom.js';
import { get, scoped, session } from './api.js';
import { chips, limitCard, tick } from './limit.js';
import { happened } from './events.js';
import { below, clock, count, given, moment, whyOf, writeDescriptor } from './format.js';
import { live } from './live.js';

const every = 5000; // ms between two answers

const matches = { exact: 'this value', wildcard: 'wildcard', any: 'any value' };

export function find(main, params) {
  const q = params.get('q') ?? '';
  const { box, say } = alertBox();
  const answer = el('div', { id: 'answer' });
  const places = el('div');
  main.append(el('h1', {}, 'Find ', el('span', { className: 'long' }, visible(q))), box, answer,
    session.bound ? '' : el('section', { className: 'card' }, el('h2', {}, 'Rules that could apply'), places));
  if (!q) {
    fill(session.bound ? answer : places, el('p', { className: 'hint' }, 'Enter the name of a customer, or another value.'));
    return () => {};
  }
  const going = new AbortController();
  const failed = (e) => e.name === 'AbortError' || say(e.message);
  let drawn = []; // the countdowns
  let shown = '';

  async function load() {
    if (document.hidden) return;
    try {
      const asked = Date.now();
      const why = await get(scoped('/v1/why', { q }), { signal: going.signal });
      say('');
      // The answer is drawn anew only if it differs, so that a selected text stays selected.
      const text = JSON.stringify([why.limits.map((l) => [l.count, l.remaining, l.denied, l.changed]), why.denials, why.events, why.grants, why.candidates, why.suggestions]);
      if (text === shown) return;
      shown = text;
      drawn = [];
      fill(answer, draw(why, asked, drawn));
      tick(drawn);
    } catch (e) {
      failed(e);
    }
  }
  load();
  if (!session.bound) {
    get(scoped('/v1/find', { q, n: 50 }), { signal: going.signal }).then((told) =>
      fill(places, list(told.places, (p) => place(p, q), 'No rule takes this value.'))).catch(failed);
  }
  const again = setInterval(load, every);
  const clocks = setInterval(() => tick(drawn), 250);
  return () => {
    clearInterval(again);
    clearInterval(clocks);
    going.abort();
  };
}

const list = (all, line, none) => (all?.length ? el('ul', { className: 'plain' }, all.map(line)) : el('p', { className: 'hint' }, none));

// draw shows an answer: the counters first, those with the value under one key together.
function draw(w, asked, drawn) {
  const card = (title, ...of) => el('section', { className: 'card' }, el('h2', {}, title), of);
  const known = w.limits.length + w.denials.length + w.grants.length > 0;
  const blocks = new Map();
  for (const l of w.limits) {
    const key = l.entries.find((e) => e.value === w.q)?.key ?? '';
    const block = `${l.domain} ${key}=${w.q}`;
    const id = writeDescriptor(l.entries);
    if (!blocks.has(block)) blocks.set(block, new Map());
    blocks.get(block).set(id, [...(blocks.get(block).get(id) ?? []), l]);
  }
  const folder = live.status?.rules.path;
  return [
    !known && card('No key has this whole value', w.candidates?.length
      ? [el('p', {}, 'Values that have it as a part:'), links(w.candidates)]
      : el('p', { className: 'hint' }, 'None of the keys that Top and Denials remember has this text.'),
    w.suggestions?.length > 0 && el('p', {}, 'Did you mean ', links(w.suggestions))),
    [...blocks].map(([block, of]) => card(visible(block), [...of].map(([id, limits]) => el('div', { className: 'found', 'data-testid': 'found-key' },
      el('a', { className: 'key long', href: whyOf(limits[0].domain, limits[0].entries) }, visible(id)),
      el('ul', { className: 'plain limits' }, limits.map((l) => limitCard({ ...l, key: '' }, asked, drawn, folder))))))),
    w.denials.length > 0 && card('Denials', chips(w.denials)),
    w.grants.length > 0 && card('Grants in force', el('ul', { className: 'plain' }, w.grants.map((g) => el('li', {},
      `${g.who ? `${visible(g.who)} granted` : 'Granted:'} ${given(g)} to ${visible(writeDescriptor(g.entries ?? []))}, ${g.id ? '' : `${count(g.left ?? 0)} are left, `}until ${moment(g.ends)}`)))),
    w.events.length > 0 && card('Since the first denial', el('ol', { className: 'plain events', tabIndex: 0, 'aria-label': 'Events since the first denial, the newest first' }, w.events.map(happened))),
    w.command && el('section', { className: 'card' }, el('h2', {}, 'The next command'), el('pre', { tabIndex: 0, 'data-testid': 'command' }, visible(w.command)),
      w.remembered && el('p', { className: 'hint' }, `Denials are remembered since ${clock(w.remembered)}.`)),
  ];
}

// links lead from a value to what is known of it.
const links = (values) => el('span', { className: 'chips' }, values.map((v) =>
  el('a', { className: 'chip', 'data-testid': 'candidate', href: `#find?${new URLSearchParams({ q: v })}` }, visible(v))));

// place shows a rule with the value filled in where it can stand.
function place(p, q) {
  const path = p.path ?? [];
  return el('li', { className: 'found', 'data-testid': 'found-place' },
    el('a', { className: 'key long', href: `#rules?${new URLSearchParams({ search: p.rule })}` }, visible(writeDescriptor(path))),
    el('span', { className: 'tag' }, matches[p.match] ?? visible(p.match)),
    el('span', { className: 'small dim long' }, ` ${visible(p.domain)} · ${visible(p.rule)} · `, visible(below(live.status?.rules.path, `${p.file}:${p.line}`))),
    p.match === 'any' && path.length > 0 && el('div', {}, el('a', { className: 'small', href: whyOf(p.domain, filled(path, q)) }, 'Why?')));
}

// filled is a path with the value in its last entry without one.
function filled(path, q) {
  const at = path.findLastIndex((e) => !e.value);
  return path.map((e, i) => (i === at ? { ...e, value: q } : e));
}
