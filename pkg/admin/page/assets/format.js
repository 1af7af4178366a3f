// Numbers, durations, times and descriptors as people read and write them.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (n) => whole.format(n);
export const short = (n) => (n < 10000 ? whole.format(n) : compact.format(n));

// spoken is a text with limits in words, whose numbers are written as all others: 20,000 per day.
export const spoken = (text) => String(text).replace(/\d+(?= (per|→) )/g, count);

// limitOf is a limit of a document in words.
export const limitOf = ({ requests_per_unit: n = 0, unit, unit_multiplier: m = 1 }) => `${count(n)} per ${m > 1 ? `${count(m)} ` : ''}${String(unit).toLowerCase()}${m > 1 ? 's' : ''}`;

// rate is a number per second, without its unit.
export function rate(n) {
  if (n === 0) return '0';
  if (n < 0.1) return '<0.1';
  return n < 100 ? tenth.format(n) : short(n);
}

export function percent(part, all) {
  if (!all) return '–';
  const p = (100 * part) / all;
  if (p === 0) return '0 %';
  if (p < 0.1) return '<0.1 %';
  return (p < 10 || (p > 99 && p < 100) ? p.toFixed(1) : whole.format(p)) + ' %';
}

const units = { ns: 1e-9, us: 1e-6, µs: 1e-6, μs: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600 };

// seconds reads a duration as Go writes it: 1m30s, 100ms.
export function seconds(text) {
  let sum = 0;
  for (const [, n, unit] of String(text ?? '').matchAll(/([\d.]+)(ns|us|µs|μs|ms|s|m|h)/g)) sum += n * units[unit];
  return sum;
}

// latency writes a short duration: 310 µs, 2.4 ms. The space does not break.
export function latency(s) {
  if (!s) return '–';
  const [n, unit] = s < 1e-3 ? [s * 1e6, 'µs'] : s < 1 ? [s * 1e3, 'ms'] : [s, 's'];
  return `${n >= 100 ? whole.format(n) : Number(n.toPrecision(2))}\u00a0${unit}`;
}

// span writes a long duration with its two largest units: 3 h 20 min.
export function span(s) {
  s = Math.max(0, s);
  if (s < 1 && s > 0) return `${Math.ceil(s * 1000)} ms`;
  s = Math.ceil(s);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const i = parts.findIndex(([size]) => s >= size);
  if (i < 0) return '0 s';
  const [size, unit] = parts[i];
  const next = parts[i + 1];
  const rest = next ? Math.floor((s % size) / next[0]) : 0;
  return `${Math.floor(s / size)} ${unit}` + (rest ? ` ${rest} ${next[1]}` : '');
}

export const clock = (time) => new Date(time).toLocaleTimeString('en-GB');

export function moment(time) {
  const t = new Date(time);
  return (t.toDateString() === new Date().toDateString() ? '' : t.toISOString().slice(0, 10) + ' ') + clock(t);
}

// below leaves out the folder of the rules where a text names files in it.
export const below = (folder, text) => (folder ? String(text).replaceAll(folder.replace(/\/*$/, '/'), '') : String(text));

const separator = /=|~(not:)?[a-z]+(\/i)?:/; // of a key and its value, or its match

// inDocuments is an entry in JSON: raw and raw_key have the bytes of texts that are not UTF-8.
const inDocuments = (e) => ({ key: e?.key, value: e?.value ?? '', raw: e?.raw, raw_key: e?.raw_key });

// parseDescriptor reads KEY=VALUE,KEY=VALUE (without = the value is empty, and KEY~MATCH has
// the value ~MATCH), {"KEY": "VALUE", …} and [{"key": "KEY", "value": "VALUE"}, …], as `rls explain` does.
export function parseDescriptor(text) {
  const start = text.trim();
  let entries;
  if (start.startsWith('[') || start.startsWith('{')) {
    let parsed;
    try {
      parsed = JSON.parse(start);
    } catch (e) {
      throw new Error(`The descriptor is not JSON: ${e.message}.`);
    }
    if (Array.isArray(parsed)) entries = parsed.map(inDocuments);
    else entries = Object.entries(parsed).map(([key, value]) => ({ key, value }));
    if (entries.some((e) => typeof e.key !== 'string' || typeof e.value !== 'string')) {
      throw new Error('The descriptor has a key or a value that is no string; want {"KEY": "VALUE"} or [{"key": "KEY", "value": "VALUE"}].');
    }
  } else {
    entries = text.split(',').map((pair) => {
      const at = pair.search(separator);
      return at < 0 ? { key: pair.trim(), value: '' } : { key: pair.slice(0, at).trim(), value: pair.slice(pair[at] === '=' ? at + 1 : at) };
    });
  }
  if (entries.some((e) => e.key === '')) throw new Error('The descriptor has an empty key; want KEY=VALUE, several separated by commas.');
  if (!entries.length) throw new Error('The descriptor has no entry; want KEY=VALUE, several separated by commas.');
  return entries;
}

// writeDescriptor is the text from which parseDescriptor reads the same entries: pairs if
// they can be told apart, else JSON.
export function writeDescriptor(entries) {
  const plain = entries.every((e, i) => !e.raw && !e.raw_key &&
    !separator.test(e.key) && !/[,\s\u0000-\u001f]/.test(e.key) && !/[,\u0000-\u001f]/.test(e.value ?? '') && !(i === 0 && /^[[{]/.test(e.key)));
  if (!plain) return JSON.stringify(entries.map(inDocuments));
  return entries.map((e) => (e.value ? `${e.key}=${e.value}` : e.key)).join(',');
}

// whyOf is the address of the view Why for a descriptor.
export const whyOf = (domain, entries) => `#why?${new URLSearchParams({ domain, descriptor: writeDescriptor(entries) })}`;

// given is what a grant lets pass, in words.
export const given = (g) => (g.limit ? limitOf(g.limit) : count(g.hits ?? 0) + (g.id ? ' per window' : ''));
