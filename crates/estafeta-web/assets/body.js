// The body of a message: as text, as JSON token by token, as bytes.
import { h, safe } from './dom.js';

const utf8 = new TextDecoder('utf-8', { fatal: false }), encoder = new TextEncoder();
export const bytesOf = e => e.bodyBase64 == null ? encoder.encode(e.body) : Uint8Array.from(atob(e.bodyBase64), c => c.charCodeAt(0));
export const textOf = e => e.bodyBase64 == null ? e.body : utf8.decode(bytesOf(e));

// A body may have a megabyte. A browser does not lay out so many elements.
const MOST_TOKENS = 20000, MOST_BYTES = 65536, MOST_TEXT = 262144;

export function kindOf(e) {
  if (e.bodyBase64 != null) return 'hex';
  try { JSON.parse(e.body); return 'json'; } catch { return 'text'; }
}

export function view(e, tab) {
  const text = textOf(e);
  if (tab === 'hex') return h('pre', { class: 'body-view hex', tabindex: '0', 'aria-label': 'Bytes' }, hex(bytesOf(e)));
  if (tab === 'json' && kindOf(e) === 'json') return h('pre', { class: 'body-view' }, colour(text));
  return h('pre', { class: 'body-view' }, safe(text.slice(0, MOST_TEXT)));
}

export function hint(e, tab) {
  const size = e.size ?? bytesOf(e).length;
  if (tab === 'json') return kindOf(e) === 'json' ? 'Each token as received: nothing reordered, no number rounded. Only line breaks are added.' : 'Not JSON, shown as received.';
  if (tab === 'hex') return size > MOST_BYTES ? `The first ${MOST_BYTES} bytes. The download has all of them.` : null;
  if (e.bodyBase64 != null) return 'Not UTF-8: bytes that are no text are marked. Hex shows them.';
  return size > MOST_TEXT ? 'The beginning. The download has all of it.' : null;
}

// JSON laid out by its tokens, never parsed and written again: what is not rounded, reordered or merged cannot mislead.
function colour(text) {
  const out = [], tokens = text.match(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|[a-z]+|[{}[\],:]/g) ?? [];
  let depth = 0;
  const line = () => '\n' + '  '.repeat(Math.min(depth, 40));
  tokens.slice(0, MOST_TOKENS).forEach((t, i) => {
    const next = tokens[i + 1];
    if (t === '{' || t === '[') { depth++; out.push(t, next === '}' || next === ']' ? '' : line()); }
    else if (t === '}' || t === ']') { depth--; out.push(tokens[i - 1] === '{' || tokens[i - 1] === '[' ? '' : line(), t); }
    else if (t === ',') out.push(t, line());
    else if (t === ':') out.push(': ');
    else out.push(h('span', { class: next === ':' ? 'k' : t.startsWith('"') ? 's' : 'n' }, safe(t)));
  });
  if (tokens.length > MOST_TOKENS) out.push('\n…');
  return out;
}

function hex(bytes) {
  const out = [], two = b => b.toString(16).padStart(2, '0'), odd = b => b < 32 || b > 126;
  for (let o = 0; o < Math.min(bytes.length, MOST_BYTES); o += 16) {
    const line = [...bytes.slice(o, o + 16)];
    out.push(h('span', { class: 'off' }, o.toString(16).padStart(4, '0') + ' '));
    // Neighbours of the same kind share an element.
    for (let i = 0; i < line.length;) {
      let j = i;
      while (j < line.length && odd(line[j]) === odd(line[i])) j++;
      out.push(h('span', odd(line[i]) ? { class: 'odd' } : null, line.slice(i, j).map(two).join(' ') + ' '));
      i = j;
    }
    out.push(' '.repeat((16 - line.length) * 3) + line.map(b => odd(b) ? '·' : String.fromCharCode(b)).join('') + '\n');
  }
  return out;
}
