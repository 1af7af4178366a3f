// Elements and text. Everything that comes from a server or a caller reaches the page
// through text nodes and attributes set here, never as HTML.

// el makes an element: el('a', {href: '#now'}, 'Now'). A property whose name is a property
// of elements (className, onclick, value, …) is set as one, the others as attributes;
// undefined, null and false are left out. Children are elements, texts or lists of them.
export function el(name, props = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key in e && !key.startsWith('aria') && key !== 'list' && key !== 'role') e[key] = value;
    else e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...flat(children));
  return e;
}

const flat = (children) => children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);

// fill gives an element new children.
export function fill(e, ...children) {
  e.replaceChildren(...flat(children));
  return e;
}

// Characters that are invisible, or that change the order of those around them.
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

// visible writes hidden characters as JSON does, \u0007, so that a value cannot look like
// another.
export const visible = (text) =>
  String(text).replace(hidden, (c) => [...Array(c.length)].map((_, i) => '\\u' + c.charCodeAt(i).toString(16).padStart(4, '0')).join(''));

// overlaid names the fields of a limit that overlays have set; their places are its title.
export const overlaid = ({ overlay }) => overlay && el('span', {
  className: 'tag', 'data-testid': 'overlay', title: visible(Object.entries(overlay).map(([name, place]) => `${name} from ${place}`).join('; ')),
}, visible(`overlay: ${Object.keys(overlay).join(', ')}`));

// field is a labelled input: field('Domain', {id, …}).
export function field(label, props) {
  const input = el('input', { type: 'text', autocomplete: 'off', spellcheck: false, ...props });
  return { input, row: el('div', { className: 'field' }, el('label', { htmlFor: input.id }, label), input) };
}

// alertBox is an empty place for an error; say shows one, or none.
export function alertBox() {
  const box = el('div', { className: 'alert', role: 'alert', hidden: true });
  return {
    box,
    say(text) {
      box.hidden = !text;
      box.textContent = text ? visible(text) : '';
    },
  };
}

// table makes a table that becomes a list of cards on a narrow screen. A column is
// {name, num}; cells get their column's name for the cards.
export function table(caption, columns, rows) {
  return el('div', { className: 'scroll' }, el('table', {},
    el('caption', { className: 'sr' }, caption),
    el('thead', {}, el('tr', {}, columns.map((c) => el('th', { scope: 'col', className: c.num ? 'num' : '' }, c.name)))),
    rows));
}

// cell is a cell of such a table.
export const cell = (column, ...children) =>
  el('td', { className: column.num ? 'num' : '', 'data-label': column.name }, children);
