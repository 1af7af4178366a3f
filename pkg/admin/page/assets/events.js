// Events, as Now and Find list them.

import { el, visible } from './dom.js';
import { moment, whyOf } from './format.js';

// happened is an event as a list item. A change of a counter leads to Why.
export const happened = (e) => el('li', { className: 'event', 'data-testid': 'event', 'data-kind': e.kind },
  el('time', { dateTime: e.time, title: e.time }, moment(e.time)),
  el('div', {}, visible(e.text), e.entries && [' ', el('a', { className: 'small', href: whyOf(e.domain, e.entries) }, 'Why?')],
    (e.replica || e.replicas) && el('span', { className: 'small dim' }, ` · ${visible(e.replica || e.replicas.join(', '))}`)));
