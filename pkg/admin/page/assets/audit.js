// Audit: the last changes of counters.

import { el, fill, table, cell, visible, alertBox } from './dom.js';
import { get } from './api.js';
import { count, moment } from './format.js';

const every = 5000; // ms

const columns = {
  time: { name: 'Time' },
  who: { name: 'Who' },
  action: { name: 'Action' },
  key: { name: 'Rule and key' },
  before: { name: 'Count before', num: true },
  after: { name: 'after', num: true },
  reason: { name: 'Reason' },
};

export function audit(main) {
  const body = el('tbody');
  const none = el('p', { className: 'hint', hidden: true }, 'Nobody has changed a counter since this process started.');
  const { box, say } = alertBox();
  main.append(el('h1', {}, 'Audit'), el('p', { className: 'hint' }, 'Resets and grants of this process, the newest first. The log has them, too, as lines with the message audit.'),
    box, el('section', { className: 'card' }, table('Changes', Object.values(columns), body), none));

  let drawn = '';
  async function load() {
    if (document.hidden) return;
    try {
      const entries = (await get('/v1/audit?n=200')).entries ?? [];
      say('');
      const text = JSON.stringify(entries);
      if (text === drawn) return;
      drawn = text;
      fill(body, entries.map(line));
      none.hidden = entries.length > 0;
    } catch (e) {
      say(e.message);
    }
  }
  load();
  const again = setInterval(load, every);
  return () => clearInterval(again);
}

const amount = (state) => (state?.count === undefined ? '–' : count(state.count) + (state.granted ? `, granted ${count(state.granted)}` : ''));

function line(e) {
  return el('tr', { 'data-testid': 'audit-row' },
    cell(columns.time, el('time', { dateTime: e.time, title: e.time }, moment(e.time))),
    cell(columns.who, el('b', {}, visible(e.who ?? '')), el('div', { className: 'small dim' }, visible(e.from ?? ''))),
    cell(columns.action, el('span', { className: 'tag' }, visible(e.action ?? ''))),
    cell(columns.key, el('div', {}, visible(e.rule || e.domain || '')), el('div', { className: 'small dim long' }, visible(e.key || (e.changed ? `${count(e.changed)} counters` : '')))),
    cell(columns.before, amount(e.before)), cell(columns.after, amount(e.after)),
    cell(columns.reason, el('span', { className: 'long' }, visible(e.reason ?? ''))));
}
