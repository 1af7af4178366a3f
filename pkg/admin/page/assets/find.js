// Find: where a value can stand in the rules, and the keys that have it.

import { el, fill, visible, alertBox } from './dom.js';
import { get, scoped, session } from './api.js';
import { below, count, moment, seconds, span, whyOf, writeDescriptor } from './format.js';
import { live } from './live.js';

const matches = { exact: 'this value', wildcard: 'wildcard', any: 'any value' };

export function find(main, params) {
  const q = params.get('q') ?? '';
  const { box, say } = alertBox();
  const keys = el('div');
  const places = el('div');
  main.append(el('h1', {}, 'Find ', el('span', { className: 'long' }, visible(q))), box,
    el('section', { className: 'card' }, el('h2', {}, 'Keys that were denied or asked for most'), keys),
    session.bound ? '' : el('section', { className: 'card' }, el('h2', {}, 'Rules in which it can stand'), places));
  const going = new AbortController();
  if (q) {
    get(scoped('/v1/find', { q, n: 50 }), { signal: going.signal }).then((told) => {
      const list = (all, line, none) => (all?.length ? el('ul', { className: 'plain' }, all.map(line)) : el('p', { className: 'hint' }, none));
      fill(keys, list(told.keys, key, 'None of the keys that Top and Denials remember has this text.'));
      fill(places, list(told.places, (p) => place(p, q), 'No rule takes this value.'));
    }).catch((e) => e.name === 'AbortError' || say(e.message));
  } else {
    fill(session.bound ? keys : places, el('p', { className: 'hint' }, 'Enter the name of a customer, or another value.'));
  }
  return () => going.abort();
}

function key(k) {
  const entries = k.entries ?? [];
  return el('li', { className: 'found', 'data-testid': 'found-key' },
    el('a', { className: 'key long', href: whyOf(k.domain, entries) }, visible(writeDescriptor(entries))),
    el('span', { className: 'small dim' }, ' ', visible(k.rule ?? '')),
    (k.limits ?? []).map((l) => el('div', {}, l.unlimited ? 'unlimited' : `${visible(l.words)}: `,
      l.plan && `plan ${visible(l.plan)}, `,
      l.count !== undefined && l.count !== null && `count ${count(l.count)}, remaining ${count(l.remaining)}, next hit ${nextHit(l)}`,
      l.error && visible(l.error))),
    (k.denied || k.last_denial) && el('div', { className: 'small dim' },
      [k.denied && `denied ${k.denied === 1 ? 'once' : `${count(k.denied)} times`} in the last minute`, k.last_denial && `last denial ${moment(k.last_denial)}`].filter(Boolean).join(', ')));
}

function nextHit(l) {
  const wait = seconds(l.next ?? '');
  return l.never ? 'never' : wait > 0 ? `in ${span(wait)}` : 'now';
}

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
