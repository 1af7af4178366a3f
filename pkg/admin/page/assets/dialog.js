// Questions before a change.

import { el, visible } from './dom.js';
import { live } from './live.js';

// confirm asks: the title is the question, and the content says what will change. Confirm is
// red if the change cannot be taken back (danger). It resolves to true for Confirm, and to
// false for Cancel and Escape.
export function confirm(title, danger, ...content) {
  return new Promise((done) => {
    const heading = el('h2', { id: 'question' }, title);
    const cancel = el('button', { type: 'button', className: 'quiet', onclick: () => dialog.close('') }, 'Cancel');
    const go = el('button', { type: 'button', className: danger ? 'danger' : '', onclick: () => dialog.close('yes') }, 'Confirm');
    const dialog = el('dialog', {
      role: 'dialog', 'aria-modal': 'true', 'aria-labelledby': 'question',
      onclose: () => {
        dialog.remove();
        done(dialog.returnValue === 'yes');
      },
    }, heading, live.status?.installation && el('p', { className: 'hint' }, `Installation ${visible(live.status.installation)}`), content, el('div', { className: 'actions' }, cancel, go));
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  });
}

// dismiss answers an open question with Cancel.
export const dismiss = () => document.querySelector('dialog')?.close('');
