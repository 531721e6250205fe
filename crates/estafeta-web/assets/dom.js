// Elements, text and words. All text goes in as text nodes; nothing is parsed as markup.
import { span } from './charts.js';

export const $ = id => document.getElementById(id);

export function h(tag, attrs, ...kids) {
  const el = document.createElement(tag);
  for (const k in attrs ?? {}) {
    const v = attrs[k];
    if (v == null || v === false) continue;
    if (k.startsWith('on')) el.addEventListener(k.slice(2), v);
    else if (k in el && typeof v !== 'string') el[k] = v;
    else el.setAttribute(k, v === true ? '' : v);
  }
  el.append(...kids.flat(3).filter(k => k != null && k !== false));
  return el;
}
export const set = (el, text) => { if (el.textContent !== text) el.textContent = text; };
// Builds the children anew only when `key` changed, so that focus and selected text survive the beat.
export const keep = (el, key, make) => { if (el.dataset.key !== key) { el.dataset.key = key; el.replaceChildren(...make()); } };
export const say = text => set($('say'), text);

// Characters that hide, reorder or erase are shown by their number.
const NAMES = { '\u202e': 'right-to-left override', '\u202c': 'end of override', '\u200b': 'zero-width space', '\u001b': 'escape', '\u0000': 'null', '\ufffd': 'not UTF-8' };
const ODD = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffd])/u;
export function safe(text) {
  return h('bdi', null, text.split(ODD).map((part, i) => i % 2 === 0 ? part
    : h('span', { class: 'esc', title: NAMES[part] ?? 'control character' }, 'U+' + part.codePointAt(0).toString(16).toUpperCase().padStart(4, '0'))));
}
export const age = s => s < 60 ? Math.max(1, Math.round(s)) + '\u00a0s' : span(s);
export const plural = (n, word) => `${new Intl.NumberFormat('en-US').format(n)} ${word}${n === 1 ? '' : 's'}`;

export function copyable(command) {
  return h('button', { type: 'button', onclick: e => { navigator.clipboard?.writeText(command); set(e.currentTarget, 'Copied'); } }, 'Copy');
}
