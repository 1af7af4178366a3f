// Why: how a request comes to its limits, and how full they are.

import { el, fill, field, table, cell, visible, alertBox } from './dom.js';
import { get, post, scoped, session } from './api.js';
import { chips, limitCard, tick } from './limit.js';
import { confirm } from './dialog.js';
import { live } from './live.js';
import { below, count, limitOf, moment, parseDescriptor, rate, span, spoken, writeDescriptor } from './format.js';

const every = 3000; // ms between two looks at the counters

export function why(main, params) {
  const domain = field('Domain', { id: 'domain', value: params.get('domain') ?? '', placeholder: 'shop', required: true, list: 'domains' });
  const domains = el('datalist', { id: 'domains' });
  const known = el('datalist', { id: 'descriptors' });
  const descriptors = el('div', { className: 'descriptors' });
  const { box, say } = alertBox();
  const answer = el('div', { id: 'answer' });
  const last = el('div', { id: 'why-last', 'aria-label': 'The last denials', role: 'group' });
  const steer = steering();

  function addDescriptor(text) {
    const n = descriptors.childElementCount + 1;
    const { row, input } = field(n === 1 ? 'Descriptor' : `Descriptor ${n}`, { id: `descriptor-${n}`, value: text, placeholder: 'plan=free,user=ann', list: 'descriptors' });
    input.addEventListener('input', () => { clearTimeout(typed); typed = setTimeout(offer, 200, input.value); });
    descriptors.append(row);
    return input;
  }
  const given = params.getAll('descriptor');
  (given.length ? given : ['']).forEach(addDescriptor);

  main.append(el('h1', {}, 'Why'),
    el('form', { className: 'card ask', noValidate: true, onsubmit: (e) => { e.preventDefault(); explain(true); } },
      domain.row, descriptors, domains, known,
      el('div', { className: 'actions' },
        el('button', { type: 'submit' }, 'Explain'),
        el('button', { type: 'button', className: 'quiet', onclick: () => addDescriptor('').focus() }, 'Add a descriptor'))),
    last, box, answer, steer.box);

  let request = null; // that the answer is about
  let drawn = []; // what changes each moment: {until, text} of each countdown
  let asked = 0;
  let turn = 0; // of explain: only the newest one draws its answer
  let folder = ''; // of the rules

  // offer fills the lists of both fields from the rules.
  let typed = 0;
  async function offer(text = '') {
    if (session.bound) return; // it may not list rules
    const asks = new URLSearchParams({ n: 50, q: [domain.input.value, ...text.split(/[=,]/)].join(' ').trim() });
    const of = (await get(`/v1/rules?${asks}`).catch(() => ({}))).rules ?? [];
    if (!domain.input.value) fill(domains, [...new Set(of.map((r) => r.domain))].map((value) => el('option', { value })));
    fill(known, of.map((r) => el('option', { value: r.entries.map((e) => `${e.key}=${e.value ?? ''}`).join(',') })));
  }

  async function explain(loud) {
    let next = request;
    if (loud) {
      try {
        next = read();
      } catch (e) {
        say(e.message);
        return;
      }
      const query = new URLSearchParams({ domain: next.domain });
      next.descriptors.forEach((d) => query.append('descriptor', writeDescriptor(d.entries)));
      history.replaceState(null, '', `#why?${query}`);
    }
    asked = Date.now();
    const mine = ++turn;
    try {
      const told = await post('/v1/explain', { ...next, rlqs: true });
      if (mine !== turn) return;
      request = next;
      draw(told);
      say('');
    } catch (e) {
      if (mine !== turn) return;
      if (loud) {
        request = null;
        fill(answer);
        steer.show(null);
      }
      say(e.message);
    }
  }

  function read() {
    if (!domain.input.value) throw new Error('Enter a domain.');
    const texts = [...descriptors.querySelectorAll('input')].map((i) => i.value).filter((t) => t.trim());
    if (!texts.length) throw new Error('Enter a descriptor, such as plan=free,user=ann.');
    return { domain: domain.input.value, descriptors: texts.map((t) => ({ entries: parseDescriptor(t) })), hits_addend: 1 };
  }

  function draw(told) {
    drawn = [];
    fill(last);
    folder = told.rules?.path;
    fill(answer, (told.descriptors ?? []).map((d) => el('section', { className: 'card descriptor' },
      el('h2', { className: 'long' }, visible(writeDescriptor(d.entries ?? []))),
      (d.entries ?? []).some((e) => /…$/.test(e.key) || /…$/.test(e.value)) &&
        el('p', { className: 'notice' }, 'Top shows only the beginning of long keys and values, and then “…”. Enter the whole descriptor to see its counters.'),
      d.why && el('p', { className: 'verdict' }, visible(below(folder, d.why))),
      suggestions(d, told.descriptors),
      d.override && el('p', { className: 'notice', 'data-testid': 'override' }, override(d.override)),
      path(d.path ?? []),
      d.row && el('p', { className: 'small dim long', 'data-testid': 'row' }, d.override ? 'in place of the row ' : 'row ', visible(below(folder, d.row))),
      (d.limits ?? []).length > 0 && el('ul', { className: 'plain limits' }, d.limits.map((l) => limitCard(l, asked, drawn, folder))),
      d.rlqs?.buckets > 0 && el('p', { className: 'hint' }, `${count(d.rlqs.buckets)} buckets of Envoys that enforce this themselves, assigned ${rate(d.rlqs.assigned_hits_per_second ?? 0)}/s`))));
    const cells = (told.descriptors ?? []).flatMap((d) => d.limits ?? []).filter((l) => l.count !== undefined && l.count !== null);
    steer.show(cells.length ? request : null, cells);
    refresh();
  }

  // suggestions are buttons that ask about what the request may have meant.
  function suggestions(d, all) {
    if (!d.suggestions?.length) return null;
    const ofDomain = d.why?.startsWith('no rules for domain');
    const input = ofDomain ? domain.input : descriptors.querySelectorAll('input')[all.indexOf(d)];
    return el('p', { className: 'actions', 'data-testid': 'suggestions' }, 'Did you mean', d.suggestions.map((text) =>
      el('button', { type: 'button', className: 'quiet', onclick: () => take(input, text) }, visible(text))));
  }

  // take asks about a suggestion. Where it leaves a value open, the person writes it first.
  function take(input, text) {
    const open = text.indexOf('…');
    input.value = text;
    if (open < 0) return explain(true);
    input.focus();
    input.setSelectionRange(open, open + 1);
  }

  // path draws the descriptors that were looked at, one level for each entry.
  function path(steps) {
    const depths = [...new Set(steps.map((s) => s.depth ?? 1))].sort((a, b) => a - b);
    return el('ol', { className: 'plain path', 'aria-label': 'Path through the rules' }, depths.map((depth) => el('li', {},
      el('ul', { className: 'plain' }, steps.filter((s) => (s.depth ?? 1) === depth).map((s) => [step(s),
        s.more && el('li', { className: 'small dim' }, `… and ${count(s.more)} more that do not match`)])))));
  }

  function step(s) {
    return el('li', { className: 'step', 'data-testid': 'path-step', 'data-won': s.won ? 'true' : 'false' },
      el('span', { className: 'mark', 'aria-hidden': 'true' }, s.won ? '✓' : '·'),
      el('div', {},
        el('span', { className: 'key long' }, visible(s.value ? `${s.key}=${s.value}` : s.key)), ' ',
        el('span', { className: 'tag' }, s.match === 'none' ? 'no match' : visible(s.match)), ' ',
        s.won && el('span', { className: 'tag green' }, 'won'),
        el('span', { className: 'small dim' }, ' ', visible(below(folder, s.line ? `${s.file}:${s.line}` : s.file ?? ''))),
        s.why && el('div', { className: 'small long' }, visible(below(folder, s.why)))));
  }

  // refresh writes the countdowns, and asks again when one has ended.
  function refresh() {
    const over = tick(drawn);
    if (!request || document.hidden || document.querySelector('dialog')) return;
    if (Date.now() - asked > every || (over && Date.now() - asked > 1000)) explain(false);
  }
  const clock = setInterval(refresh, 250);

  // steering is the form that changes the counters of the answer.
  function steering() {
    const hits = field('Hits', { id: 'hits', type: 'number', min: 1, step: 1, value: 10, inputMode: 'numeric' });
    const until = field('Until', { id: 'until', type: 'datetime-local', title: 'Empty: the grant ends with the running window' });
    const limit = field('New limit', { id: 'new-limit', placeholder: '600/minute', title: 'Until the time, in place of the limit and of Hits' });
    limit.input.oninput = () => { hits.input.disabled = limit.input.disabled || limit.input.value.trim() !== ''; };
    const only = el('select', { id: 'only' });
    const onlyRow = el('div', { className: 'field narrow', hidden: true }, el('label', { htmlFor: 'only' }, 'Limit'), only);
    const reason = field('Reason', { id: 'reason', maxLength: 200, placeholder: 'goes into the audit' });
    const { box: fault, say: sayFault } = alertBox();
    const done = el('p', { role: 'status', className: 'done' });
    const grant = el('button', { type: 'submit' }, 'Grant');
    const reset = el('button', { type: 'button', className: 'danger', onclick: () => once('reset') }, 'Reset');
    const hint = el('p', { className: 'hint' });
    const form = el('form', { noValidate: true, onsubmit: (e) => { e.preventDefault(); once('grant'); } },
      el('div', { className: 'tools' }, hits.row, limit.row, onlyRow, until.row, reason.row, el('div', { className: 'actions' }, grant, reset)));
    const section = el('section', { className: 'card steer', hidden: true }, el('h2', {}, 'Change these counters'), form, hint, fault, done);
    let about = null;
    let changing = false;

    // once keeps a double click from asking twice.
    async function once(action) {
      if (changing) return;
      changing = true;
      try {
        await change(action);
      } finally {
        changing = false;
      }
    }

    async function change(action) {
      const { request: asks } = about;
      done.textContent = '';
      const body = { ...asks, reason: reason.input.value };
      let question, button, before, after;
      if (action === 'grant') {
        if (only.value) body.only = only.value;
        if (until.input.value) body.until = new Date(until.input.value).toISOString();
        if (limit.input.value.trim()) {
          body.limit = limit.input.value.trim();
          if (!body.until) return sayFault('A new limit holds until a time: enter it in Until, or empty New limit.');
          question = `Grant ${visible(body.limit)} in place of the limit?`;
        } else {
          body.hits = Number(hits.input.value);
          if (!Number.isInteger(body.hits) || body.hits < 1) return sayFault('Hits must be a whole number, at least 1.');
          question = `Grant ${count(body.hits)} hits more${body.until ? ' in each window' : ''}?`;
        }
        [before, after] = [(c) => c.before.remaining, (c) => c.after.remaining];
        button = grant;
      } else {
        question = 'Reset these counters?';
        [before, after] = [(c) => c.before.count, (c) => c.after.count];
        button = reset;
      }
      sayFault('');
      const what = action === 'grant' ? { name: 'Remaining', num: true } : { name: 'Count', num: true };
      const rule = { name: 'Rule and key' };
      // The changes, or why they are refused, at this moment.
      let changes, ends;
      try {
        const told = await post(`/v1/${action}`, { ...body, dry_run: true });
        changes = (told.changes ?? []).filter((c) => c.after);
        ends = told.until ? `${moment(told.until)}, in ${span(Math.max(1, (Date.parse(told.until) - live.now) / 1000))}` : 'with the window';
      } catch (e) {
        return sayFault(e.message);
      }
      if (!section.isConnected) return; // the user has left
      const sure = await confirm(question, action === 'reset',
        el('p', { className: 'long' }, 'Domain ', el('b', {}, visible(asks.domain)), ', ', asks.descriptors.map((d) => el('code', {}, visible(writeDescriptor(d.entries)), ' '))),
        table('What will change', [rule, what], el('tbody', {}, changes.map((c) => el('tr', {},
          cell(rule, el('span', { className: 'long' }, visible(c.rule)), el('div', { className: 'small dim long' }, visible(c.key))),
          cell(what, `${count(before(c))} → ${count(after(c))}`))))),
        changes.map((c) => c.note && el('p', { className: 'hint' }, visible(c.note))),
        el('p', { className: 'hint' }, action === 'grant' ? `The grant ends ${ends}. ${body.until ? '' : 'Until makes it longer. '}The change is written to the audit.` : `Callers get the whole limit anew; the new window ends ${ends}. The change is written to the audit.`));
      if (!sure) {
        button.focus();
        return;
      }
      try {
        const told = await post(`/v1/${action}`, body);
        const n = told.changed ?? 0;
        done.textContent = `${action === 'grant' ? 'Granted' : 'Reset'}: ${count(n)} ${n === 1 ? 'counter' : 'counters'} changed.${body.until ? ` The grant ends ${ends}.` : ''}`;
        reason.input.value = '';
      } catch (e) {
        sayFault(e.message);
      }
      button.focus();
      explain(false);
    }

    return {
      box: section,
      show(asks, cells) {
        section.hidden = !asks;
        about = { request: asks };
        const titles = asks ? [...new Set(cells.map(titleOf))] : [];
        onlyRow.hidden = titles.length < 2;
        if (JSON.stringify(titles) !== only.dataset.titles) {
          only.dataset.titles = JSON.stringify(titles);
          fill(only, el('option', { value: '' }, 'each limit'), titles.map((value) => el('option', { value }, visible(spoken(value)))));
        }
        const may = session.mayWrite;
        for (const control of [grant, reset, limit.input, until.input, reason.input]) control.disabled = !may;
        limit.input.oninput();
        hint.textContent = may ? 'Grant gives more hits for the running window, or in each until a time, or a new limit until a time. Reset empties the counters.' : 'Your token may read only. A token with the role write may reset and grant.';
        if (!asks) fill(done);
      },
    };
  }

  offer(given[0]);
  if (given.length && domain.input.value) explain(true);
  else {
    get(scoped('/v1/denials', { group: true, n: 8 })).then((told) => request || fill(last, chips(told.groups ?? []))).catch(() => {});
    (domain.input.value ? descriptors.querySelector('input') : domain.input).focus({ preventScroll: true });
  }
  return () => {
    clearInterval(clock);
    clearTimeout(typed);
    turn++;
  };
}

// titleOf is the text by which a grant picks a limit.
const titleOf = (l) => l.name || l.words.split(',', 1)[0];

// override says whose limit stands in place of the rule's.
function override(o) {
  const limit = limitOf(o);
  return o.seen ? `The last request with these entries, at ${moment(o.seen)}, brought ${limit} in place of the rule's limit.` : `The limit came with the request: ${limit}.`;
}
