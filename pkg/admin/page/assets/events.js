// Events, as Now and Find list them.

import { el, visible } from './dom.js';
import { below, moment, whyOf } from './format.js';
import { live } from './live.js';

// told is the text of an event, in which files are named from the folder of the rules on.
export const told = (e) => visible(below(live.status?.rules.path, e.text));

// happened is an event as a list item. A change of a counter leads to Why.
export const happened = (e) => el('li', { className: 'event', 'data-testid': 'event', 'data-kind': e.kind },
  el('time', { dateTime: e.time, title: e.time }, moment(e.time)),
  el('div', {}, told(e), e.entries && [' ', el('a', { className: 'small', href: whyOf(e.domain, e.entries) }, 'Why?')],
    (e.replica || e.replicas) && el('span', { className: 'small dim' }, ` · ${visible(e.replica || e.replicas.join(', '))}`)));
