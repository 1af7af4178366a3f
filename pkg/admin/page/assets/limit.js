// What Why and Find show of limits and denials.

import { el, overlaid, visible } from './dom.js';
import { below, clock, count, moment, seconds, span, spoken, whyOf, writeDescriptor } from './format.js';

const warns = 0.8; // the used part from which a bar is amber

// limitCard shows a limit as a list item: its words, how full it is, and what happened to it. It adds the
// countdowns to drawn as {until, text}; asked is the time of the answer in ms, and folder that of the rules.
export function limitCard(l, asked, drawn, folder) {
  const known = l.count !== undefined && l.count !== null;
  const all = known ? Math.max(l.count + l.remaining, l.limit ?? 0, 1) : 1;
  const used = known ? Math.min(Math.max(l.count / all, 0), 1) : 0;
  const bar = el('div', { className: 'used' });
  bar.style.width = `${100 * used}%`;
  const ticks = (l.thresholds ?? []).map((at) => {
    const tick = el('span', { className: 'tick', title: `threshold ${at}` });
    tick.style.left = at;
    return tick;
  });
  const countdown = (className, wait, now) => {
    const text = el('b', { className }, now);
    if (known && seconds(wait ?? '') > 0) drawn.push({ until: asked + 1000 * seconds(wait), text });
    return text;
  };
  const last = l.last_denial && `last denial ${moment(l.last_denial)}${l.denied > 1 ? `, ${count(l.denied)} denials` : ''}`;
  return el('li', { className: 'limit', 'data-testid': 'limit', 'data-full': known && l.remaining <= 0 ? 'true' : 'false', 'data-warns': used >= warns ? 'true' : 'false' },
    el('div', { className: 'head' },
      el('b', {}, l.unlimited ? 'unlimited' : visible(spoken(l.words))), ' ',
      l.name && el('span', { className: 'tag' }, visible(l.name)), ' ',
      l.plan && el('span', { className: 'tag', 'data-testid': 'plan' }, `plan ${visible(l.plan)}`), ' ',
      overlaid(l),
      el('span', { className: 'small dim long' }, ' ', visible(l.rule ?? ''))),
    known && el('div', { className: 'meter', role: 'meter', 'aria-label': 'Used', 'aria-valuemin': 0, 'aria-valuemax': all, 'aria-valuenow': Math.min(Math.max(l.count, 0), all), 'aria-valuetext': `${count(l.count)} used, ${count(l.remaining)} remaining` }, bar, ticks),
    known && el('div', { className: 'figures' },
      el('span', {}, 'count ', el('b', { className: 'num' }, count(l.count))),
      l.granted && el('span', {}, 'granted ', el('b', { className: 'num' }, count(l.granted))),
      el('span', {}, 'remaining ', el('b', { className: 'num' }, count(l.remaining))),
      l.threshold && el('span', {}, 'threshold ', el('b', { className: 'num' }, visible(l.threshold))),
      el('span', {}, 'reset ', countdown('num countdown', l.reset, 'now')),
      el('span', {}, l.enforced === false ? 'would pass ' : 'next hit ', countdown('num', l.next, l.never ? 'never' : 'now')),
      l.policy && el('span', { title: 'on_error' }, 'if the store is away: ', el('b', {}, visible(l.policy)))),
    last && el('div', { className: 'small' }, last),
    l.changed && el('p', { className: 'notice', 'data-testid': 'changed' }, `This limit changed at ${moment(l.changed.time)}: `, visible(below(folder, changeWords(l.changed)))),
    l.grant && el('div', { className: 'notice', 'data-testid': 'raised' }, `Granted until ${moment(l.grant.until)}${l.grant.who ? ` by ${visible(l.grant.who)}` : ''}, in place of ${visible(l.grant.of ?? '')}`),
    l.error && el('div', { className: 'notice' }, visible(l.error), l.policy && el('div', {}, 'The policy ', el('b', {}, visible(l.policy)), ' decides now.')),
    l.key && el('div', { className: 'small dim long' }, 'key ', el('code', {}, visible(l.key))));
}

// changeWords is a change of a limit in words, with its place.
function changeWords(c) {
  if (c.rows) return `${c.file} +${c.rows.came} −${c.rows.went}, ${c.rows.changed} changed`;
  const words = !c.from ? `came: ${c.to}` : c.from === 'unknown' ? `changed to ${c.to}` : `${c.from} → ${c.to}`;
  return spoken(words) + (c.file ? ` (${c.file}:${c.line})` : '');
}

// tick writes the countdowns. It reports whether one has ended, so that the counters have changed.
export function tick(drawn) {
  let over = false;
  for (const c of drawn) {
    const left = (c.until - Date.now()) / 1000;
    c.text.textContent = left > 0 ? `in ${span(left < 1 ? 1 : left)}` : 'now';
    over ||= left <= 0;
  }
  return over;
}

// chips are groups of denials, each of which leads to Why.
export const chips = (groups) => el('div', { className: 'chips' }, groups.map((g) =>
  el('a', { className: 'chip', 'data-testid': 'chip', href: whyOf(g.domain, g.entries ?? []) },
    el('span', { className: 'key long' }, visible(writeDescriptor(g.entries ?? []))),
    el('span', { className: 'small dim' }, ` ${count(g.count)}× ${visible(spoken(g.words))}, ${[...new Set([clock(g.first), clock(g.last)])].join('–')}`))));
