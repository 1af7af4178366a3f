// The admin API, with the token that this tab keeps in its sessionStorage.

const kept = 'rls-token';

export const session = {
  get token() { return sessionStorage.getItem(kept); },
  set token(token) { token ? sessionStorage.setItem(kept, token) : sessionStorage.removeItem(kept); },
  role: '', // read or write, from the newest answer
  bound: '', // what the token is bound to, such as tenant=acme: Find and Why alone answer it
  get mayWrite() { return session.role !== 'read'; },
};

// fleet is what the page knows of the other replicas.
export const fleet = {
  on: false, // the asked replica knows others
  all: [], // the replicas that the last answer about all of them names: {address, ok, error, name}
  chosen: '', // the address of the one that the page shows; '' shows all
};

// scoped is the path of a question to the replicas that the page shows.
export function scoped(path, query = {}) {
  const asks = new URLSearchParams(query);
  if (fleet.on) asks.set('fleet', 'true');
  if (fleet.chosen) asks.set('replica', fleet.chosen);
  return asks.size ? `${path}?${asks}` : path;
}

// Refused is thrown for an answer that is an error. Its message is a sentence for people.
export class Refused extends Error {
  constructor(status, message, bound = '') {
    super(message);
    this.status = status;
    this.bound = bound;
  }
}

// signedOut is told when the server no longer takes the token.
let signedOut = () => {};
export const onSignedOut = (f) => { signedOut = f; };

async function ask(path, { body, token = session.token, signal, accept } = {}) {
  const headers = accept ? { Accept: accept } : {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, { method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body), signal, cache: 'no-store' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused(0, 'The server does not answer.');
  }
  if (answer.ok) {
    session.role = answer.headers.get('Rls-Role') ?? '';
    return answer;
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.status === 401 && token === session.token) signedOut();
  throw new Refused(answer.status, told.message || `The server answered ${answer.status}.`, told.bound);
}

export const get = async (path, options) => (await ask(path, options)).json();
export const post = async (path, body) => (await ask(path, { body })).json();

// signIn tries a token and keeps it if the server takes it.
export async function signIn(token) {
  // A header can hold no other characters, so no token has them.
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Refused(0, 'A token has no spaces and no special characters.');
  await look(token);
  session.token = token;
}

// look learns what a token may do.
export async function look(token) {
  session.bound = '';
  try {
    await get('/v1/status', { token });
  } catch (e) {
    if (!e.bound) throw e;
    Object.assign(session, { bound: e.bound, role: 'read' });
    fleet.on = true; // Find asks all replicas if there are several
  }
}

// signInByLink signs in with the secret of a link, which can be used once.
export async function signInByLink(secret) {
  session.bound = '';
  session.token = (await (await ask('/v1/sign-in', { body: {}, token: secret })).json()).token;
}

// events reads the server-sent events of a path and calls heard with each, until signal is
// aborted. It is fetch because EventSource cannot send the token. When the connection
// ends it connects again, after a pause that grows to 5 s. It awaits opened after each connection,
// before the first event.
export async function events(path, heard, signal, opened) {
  for (let pause = 250; !signal.aborted; pause = Math.min(pause * 2, 5000)) {
    let answer;
    try {
      answer = await ask(path, { signal, accept: 'text/event-stream' });
      await opened?.();
      for await (const text of messages(answer.body)) {
        heard(JSON.parse(text));
        pause = 125;
      }
    } catch (e) {
      answer?.body.cancel().catch(() => {});
      if (signal.aborted || e.status === 401) return;
    }
    await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
  }
}

// messages gives the data of each event of a stream.
async function* messages(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split('\n').filter((l) => l.startsWith('data:')).map((l) => l.slice(5).trimStart()).join('\n');
        if (data) yield data;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
