// The frame of the page: signing in, the views, and what every view shows of the state.

import { el, field, fill, alertBox, visible } from './dom.js';
import { session, signIn, signInByLink, onSignedOut, fleet, look } from './api.js';
import { dismiss } from './dialog.js';
import { clock, span } from './format.js';
import * as stream from './live.js';
import { now } from './now.js';
import { rules } from './rules.js';
import { top } from './top.js';
import { why } from './why.js';
import { denials } from './denials.js';
import { audit } from './audit.js';
import { find } from './find.js';

const views = { now, rules, top, denials, why, audit, find };
const boundViews = ['why', 'find']; // for a token that is bound

const main = document.getElementById('main');
const bar = document.getElementById('bar');
const stale = document.getElementById('stale');
const health = document.getElementById('health');
const who = document.getElementById('who');
const search = document.getElementById('find');
const replicas = document.getElementById('replicas');
const replica = document.getElementById('replica');

let leave = null; // ends the view that is shown
let shown = '';

// home names the installation and its address.
const home = () => [stream.live.status?.installation, location.host].filter(Boolean).map(visible).join(' · ');
const host = document.getElementById('host');
host.textContent = home();
document.getElementById('sign-out').onclick = () => askForToken();
onSignedOut(() => askForToken('The server no longer takes this token. Sign in again.'));
document.addEventListener('visibilitychange', () => session.token && !session.bound && (document.hidden ? stream.pause() : stream.start()));
addEventListener('hashchange', () => byLink() || session.token && show(true));
document.querySelector('.skip').onclick = (event) => {
  event.preventDefault(); // #main is no view
  main.focus();
};

document.getElementById('find-form').onsubmit = (event) => {
  event.preventDefault();
  if (search.value.trim()) location.hash = `#find?${new URLSearchParams({ q: search.value.trim() })}`;
};
replica.onchange = () => {
  fleet.chosen = replica.value;
  stream.start();
  show(false);
};

// place reads the address: #why?domain=shop is the view why with a domain.
function place() {
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  const known = session.bound ? boundViews.includes(name) : Object.hasOwn(views, name);
  return { name: known ? name : session.bound ? 'find' : 'now', params: new URLSearchParams(query ?? '') };
}

// show shows the view of the address. moved: the user came by a link, so that the focus
// goes with them.
function show(moved) {
  const { name, params } = place();
  dismiss();
  leave?.();
  for (const a of bar.querySelectorAll('nav a')) {
    if (a.hash === `#${name}`) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  health.hidden = !!session.bound || name === 'now'; // its banner says the state
  entitle(name);
  main.className = `view-${name}`;
  main.replaceChildren();
  leave = views[name](main, params);
  if (moved && name !== shown) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  shown = name;
  search.value = name === 'find' ? params.get('q') ?? '' : '';
}

const entitle = (name) => { document.title = `${name[0].toUpperCase() + name.slice(1)} · rls ${home()}`; };

const showRole = () => { who.textContent = session.bound ? visible(session.bound) : session.role === 'read' ? 'read only' : ''; };

function enter() {
  bar.hidden = false;
  showRole();
  for (const a of bar.querySelectorAll('nav a')) a.hidden = session.bound && !boundViews.includes(a.hash.slice(1));
  if (!session.bound) stream.start();
  show(false);
}

function askForToken(reason) {
  dismiss();
  leave?.();
  leave = null;
  stream.stop();
  session.token = null;
  session.role = session.bound = '';
  bar.hidden = stale.hidden = replicas.hidden = true;
  delete document.body.dataset.stale;
  document.title = 'Sign in · rls';
  main.className = 'sign-in';

  const { input, row } = field('Token', { id: 'token', type: 'password', required: true });
  const { box, say } = alertBox();
  const button = el('button', { type: 'submit' }, 'Sign in');
  const form = el('form', {
    noValidate: true,
    onsubmit: async (event) => {
      event.preventDefault();
      if (!input.value) return say('Enter a token.');
      button.disabled = true;
      say('');
      try {
        await signIn(input.value.trim());
        enter();
      } catch (e) {
        say(e.status === 401 ? 'The server does not take this token. Check that it is a line of ADMIN_TOKEN_FILE.' : e.message);
        input.select();
      } finally {
        button.disabled = false;
      }
    },
  }, row, el('p', { className: 'hint' }, 'Your access token. Operators keep them in ADMIN_TOKEN_FILE. It stays in this tab until you close it or sign out.'), box, button);
  fill(main, el('div', { className: 'card' },
    el('img', { src: '/assets/icon.svg', alt: '', width: 40, height: 40 }),
    el('h1', {}, 'Sign in to rls'), el('p', { className: 'hint' }, location.host), form));
  if (reason) say(reason);
  input.focus();
}

const states = { ok: 'All well', warning: 'Warning', critical: 'Critical' };

// showReplicas offers the replicas of the fleet.
function showReplicas() {
  replicas.hidden = !fleet.on;
  const options = [['', 'All'], ...fleet.all.map((r) => [r.address, `${r.name ? `${r.name} at ` : ''}${r.address}${r.ok ? '' : ' (no answer)'}`])];
  const told = JSON.stringify(options);
  if (replica.dataset.told === told) return;
  replica.dataset.told = told;
  fill(replica, options.map(([value, name]) => el('option', { value, selected: value === fleet.chosen }, visible(name))));
}

stream.watch((status) => {
  if (host.textContent !== home()) {
    host.textContent = home();
    host.toggleAttribute('data-named', Boolean(status.installation));
    entitle(shown);
  }
  showReplicas();
  health.dataset.state = status.health.state;
  health.textContent = states[status.health.state] ?? status.health.state;
});

// Old data must look old.
setInterval(() => {
  if (!session.token || session.bound || document.hidden) return;
  showRole(); // the file of tokens may change
  const old = stream.live.stale;
  stale.hidden = !old;
  document.body.toggleAttribute('data-stale', old);
  if (!old) {
    if (stream.live.status) health.dataset.state = stream.live.status.health.state, health.textContent = states[health.dataset.state];
    return;
  }
  health.dataset.state = 'unknown';
  health.textContent = 'No news';
  const last = stream.live.status ? ` You see the state of ${clock(stream.live.status.now)}.` : '';
  const text = `No news from the server for ${span(Math.floor(stream.live.age))}.${last} Trying again…`;
  if (stale.textContent !== text) stale.textContent = text;
}, 1000);

// byLink signs in if the address is a link with a secret, and takes the secret out of the address.
function byLink() {
  const secret = location.hash.match(/^#link=(.+)$/)?.[1];
  if (!secret) return false;
  history.replaceState(null, '', location.pathname);
  signInByLink(secret).then(enter, (e) => askForToken(e.message));
  return true;
}

if (byLink()) {
  // It enters, or asks for a token.
} else if (session.token) {
  look(session.token).catch(() => {}).finally(() => session.token && enter());
} else {
  askForToken();
}
