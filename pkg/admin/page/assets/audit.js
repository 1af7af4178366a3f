// Audit: the last changes of counters.

import { el, fill, table, cell, visible, alertBox } from './dom.js';
import { get, post, scoped, session } from './api.js';
import { confirm } from './dialog.js';
import { count, given, moment, span, whyOf, writeDescriptor } from './format.js';
import { live } from './live.js';

const every = 5000; // ms

const columns = {
  time: { name: 'Time' },
  who: { name: 'Who' },
  action: { name: 'Action' },
  key: { name: 'Rule and descriptor' },
  before: { name: 'Count before', num: true },
  after: { name: 'after', num: true },
  reason: { name: 'Reason' },
};

const granted = {
  key: { name: 'Rule and descriptor' },
  who: { name: 'Who' },
  hits: { name: 'Granted', num: true },
  left: { name: 'left', num: true },
  ends: { name: 'Ends', num: true },
  revoke: { name: '' },
};

export function audit(main) {
  const inForce = el('tbody');
  const grants = el('section', { className: 'card', hidden: true }, el('h2', {}, 'Grants in force'), table('Grants in force', Object.values(granted), inForce));
  const body = el('tbody');
  const none = el('p', { className: 'hint', hidden: true }, 'Nobody has changed a counter since this process started.');
  const { box, say } = alertBox();
  main.append(el('h1', {}, 'Audit'), el('p', { className: 'hint' }, 'Resets and grants, the newest first. The log has them, too, as lines with the message audit.'),
    box, grants, el('section', { className: 'card' }, table('Changes', Object.values(columns), body), none));

  let drawn = '';
  async function load() {
    if (document.hidden) return;
    try {
      const [told, now] = await Promise.all([get(scoped('/v1/audit', { n: 200 })), get(scoped('/v1/grants')).catch((e) => ({ fault: e.message }))]);
      const entries = told.entries ?? [];
      const all = now.grants ?? [];
      say(now.fault ?? '');
      grants.hidden = !all.length;
      const focused = document.activeElement?.dataset.revokes;
      fill(inForce, all.map((g) => grant(g, revoke)));
      if (focused) inForce.querySelector(`[data-revokes="${CSS.escape(focused)}"]`)?.focus();
      const text = JSON.stringify(entries);
      if (text === drawn) return;
      drawn = text;
      fill(body, entries.map(line));
      none.hidden = entries.length > 0;
    } catch (e) {
      say(e.message);
    }
  }
  // revoke ends a grant until a time.
  async function revoke(g) {
    if (!await confirm('Revoke this grant?', false, el('p', { className: 'long' }, visible(g.rule ?? ''), ' ', el('code', {}, visible(g.entries ? writeDescriptor(g.entries) : g.key ?? ''))), el('p', { className: 'hint' }, 'The limit of the rule counts again. The change is written to the audit.'))) return;
    try {
      await post('/v1/revoke', { id: g.id });
    } catch (e) {
      return say(e.message);
    }
    load();
  }

  load();
  const again = setInterval(load, every);
  return () => clearInterval(again);
}

// counter names the counter of a change by its descriptor, which leads to Why; else by its key in the store.
const counter = (of) => (of.entries
  ? el('a', { className: 'small long', href: whyOf(of.domain, of.entries), title: visible(of.key) }, visible(writeDescriptor(of.entries)))
  : el('div', { className: 'small dim long' }, visible(of.key || (of.changed ? `${count(of.changed)} counters` : ''))));

function grant(g, revoke) {
  return el('tr', { 'data-testid': 'grant' },
    cell(granted.key, el('div', {}, visible(g.rule ?? '')), counter(g)),
    cell(granted.who, visible(g.who ?? '')),
    cell(granted.hits, given(g)), cell(granted.left, g.id ? visible(g.error ?? '') : count(g.left ?? 0)),
    cell(granted.ends, `in ${span((Date.parse(g.ends) - live.now) / 1000)}`),
    cell(granted.revoke, g.id && el('button', { type: 'button', className: 'quiet', 'data-revokes': g.id, disabled: !session.mayWrite, onclick: () => revoke(g) }, 'Revoke')));
}

const amount = (state) => (state?.count === undefined ? '–' : count(state.count) + (state.granted ? `, granted ${count(state.granted)}` : ''));

function line(e) {
  return el('tr', { 'data-testid': 'audit-row' },
    cell(columns.time, el('time', { dateTime: e.time, title: e.time }, moment(e.time))),
    cell(columns.who, el('b', {}, visible(e.who ?? '')), el('div', { className: 'small dim' }, visible(e.from ?? ''), e.replica && ` · ${visible(e.replica)}`)),
    cell(columns.action, el('span', { className: 'tag' }, visible(e.action ?? '')), e.until && el('div', { className: 'small dim' }, `until ${moment(e.until)}`)),
    cell(columns.key, el('div', {}, visible(e.rule || e.domain || '')), counter(e)),
    cell(columns.before, amount(e.before)), cell(columns.after, amount(e.after)),
    cell(columns.reason, el('span', { className: 'long' }, visible(e.reason ?? ''))));
}
