// The errors: their reasons, a list that is read in pages, one of them, and what can be done with many.
import { svg, icon, count, clock } from './charts.js';
import { $, h, set, say, safe, age, plural } from './dom.js';
import { ring, get, post, url } from './live.js';
import { view, hint, kindOf, textOf } from './body.js';
import { emptyPage, picture, lostPage } from './overview.js';

const MANY = 50, CHUNK = 200;
const state = { items: [], next: null, kept: 0, reasons: null, selected: new Set(), all: false, job: null, tab: null, open: new Map(), key: null, problem: null, busy: false, seen: null, first: null };
let parts = {}, address = () => ({ q: new URLSearchParams() }), go = () => {}, route = () => '#/errors';
export const setErrorsRoute = (a, g, r) => { address = a; go = g; route = r; };
export const errors = { show, update, key, route: arrived };

// A number, or text with a partition, such as 2:17.
const number = id => typeof id === 'string' ? id : count(id);
const inPartition = e => e.partition == null ? e : { ...e, id: `${e.partition}:${e.id}`, member: `${e.partition}:${e.member}` };
const ago = t => age((ring.now() - t) / 1000), mayChange = () => !!ring.meta?.mayChange;
// An age that grows by itself, without building its surroundings anew.
const since = (t, after = '') => h('span', { 'data-since': String(t), 'data-after': after }, ago(t) + after);
const filter = () => { const { q } = address(); return { text: q.get('text') ?? '', reason: q.get('reason') ?? '' }; };
// Without a choice the newest error is open. It stays open when newer ones come, so that nothing changes under the eyes.
function openId() {
  if (!state.items.some(e => String(e.id) === state.first)) state.first = state.items[0] ? String(state.items[0].id) : null;
  return address().q.get('open') ?? state.first;
}
// A list that is scrolled, or of which something is selected, stays as it is.
const isInUse = () => state.all || state.selected.size > 0 || parts.list?.scrollTop > 0 || phone.matches && scrollY > 200;
const narrow = matchMedia('(max-width: 1199px)'), phone = matchMedia('(max-width: 720px)');

// ---- reading

let reading = null;
async function load(more) {
  reading?.abort();
  const mine = reading = new AbortController(), f = filter();
  state.busy = true;
  try {
    // A search stops after a while, and goes on from where it was, until it has found something.
    let after = more ? state.next : '', found = [];
    for (let i = 0; i < 40; i++) {
      const page = await get('/errors', { after, ...f, count: 100 }, mine.signal);
      found.push(...page.errors); state.kept = page.kept; after = page.next;
      if (!after || found.length >= 50) break;
    }
    const known = new Set(more ? state.items.map(e => e.id) : []);
    state.items = [...more ? state.items : [], ...found.filter(e => !known.has(e.id))];
    state.next = after; state.problem = null;
  } catch (e) { if (e.name === 'AbortError') return; state.problem = e.message; }
  state.busy = false;
  update();
}
async function loadReasons() {
  try { state.reasons = await get('/errors/reasons'); } catch { /* the list says what is wrong */ }
  update();
}
function refresh() { load(false); loadReasons(); }

let typing = 0;
function arrived() {
  const f = filter(), key = ring.name + '\n' + f.text + '\n' + f.reason;
  if (key !== state.key) { state.key = key; state.all = false; state.first = null; clearTimeout(typing); typing = setTimeout(() => load(false), 120); }
  update();
}

// ---- the view

function show(main) {
  const f = filter();
  parts = { main };
  state.key = ring.name + '\n' + f.text + '\n' + f.reason;
  state.items = []; state.next = null; state.reasons = null; state.seen = null; state.first = null;
  main.replaceChildren(h('p', { class: 'loading' }, 'Reading the errors …'));
  refresh();
}

function build() {
  const { q } = address(), p = parts;
  const search = h('input', { type: 'search', id: 'search', placeholder: 'Search reason, body or id', 'aria-label': 'Search errors', maxlength: '200', value: q.get('text') ?? '', oninput: e => go({ text: e.target.value, open: null }) });
  p.detail = h('section', { class: 'panel detail', 'aria-label': 'One error' });
  p.groups = h('div', { class: 'scroll' });
  p.list = h('div', { class: 'scroll rows', onscroll: e => { if (e.target.scrollTop + e.target.clientHeight > e.target.scrollHeight - 120 && state.next && !state.busy) load(true); } });
  p.bulk = h('div', { class: 'bulk' });
  p.main.replaceChildren(h('div', { class: 'page-head' }, h('h1', null, 'Errors'), p.sum = h('p'), h('div', { class: 'search' }, search, h('kbd', { 'aria-hidden': 'true' }, '/')), p.download = h('a', { class: 'button linkbutton', download: '' }, 'Download')),
    h('div', { class: 'mail' }, h('section', { class: 'panel groups', 'aria-label': 'Reasons' }, h('header', null, h('h2', null, 'Reasons'), p.reasonNote = h('span', { class: 'aside' })), p.groups), h('section', { class: 'panel', 'aria-label': 'List' }, p.bulk, p.list), p.detail));
  p.built = true;
}

function update() {
  const p = parts;
  if (!p.main?.isConnected || address().view !== 'errors') return;
  const kept = ring.snap?.errorsKept;
  if (!p.built && (ring.lost || state.problem && !ring.snap)) {
    const key = ring.lost && ring.lost.why + ring.lost.reason;
    if (key && p.lost !== key) { p.lost = key; p.empty = false; p.main.replaceChildren(lostPage()); }
    return;
  }
  // What could not be read is read again.
  if (state.problem && !ring.lost && !state.busy && Date.now() - (state.at ?? 0) > 2000) { state.at = Date.now(); refresh(); }
  // Errors came or went. The beginning of the list is read again, but not under the hands of a person who reads on.
  if (kept != null && state.seen !== kept && !state.job && !state.busy && !isInUse() && Date.now() - (state.at ?? 0) > 2000) { state.seen = kept; state.at = Date.now(); if (state.items.length <= 100) load(false); loadReasons(); }
  const f = filter(), none = !state.busy && !state.items.length && !f.text && !f.reason && !state.problem && !state.kept && !kept;
  if (none) { if (p.empty !== true) { p.empty = true; p.built = false; p.main.replaceChildren(noErrors()); } return; }
  p.empty = false;
  if (!p.built) { if (state.busy && !state.items.length) return; build(); }
  set(p.sum, state.problem ?? `${count(kept ?? state.kept)} kept${state.items[0] && !f.text && !f.reason ? `, the newest ${ago(state.items[0].failedMs)} ago` : ''}`);
  p.download.setAttribute('href', url('/errors.ndjson', f));
  p.download.setAttribute('download', ring.name.replace('/', '-') + '-errors.ndjson');
  drawGroups(f); drawBulk(); drawRows(); drawDetail();
  for (const e of document.querySelectorAll('[data-since]')) set(e, ago(Number(e.dataset.since)) + e.dataset.after);
}

function drawGroups(f) {
  const p = parts, r = state.reasons;
  if (!r) return;
  const key = JSON.stringify([r, f.reason]);
  if (p.groupKey === key && p.groups.children.length) return;
  p.groupKey = key;
  const top = r.reasons[0]?.count ?? 1;
  set(p.reasonNote, r.counted < r.kept ? `of the newest ${count(r.counted)}` : plural(r.reasons.length, 'kind'));
  p.groups.replaceChildren(...r.reasons.map(g => h('button', { class: 'group', disabled: g.reason == null, 'aria-pressed': String(f.reason !== '' && f.reason === g.reason), onclick: () => { state.selected.clear(); state.all = false; go({ reason: f.reason === g.reason ? null : g.reason, open: null }); } },
    h('span', { class: 'why' }, g.reason == null ? 'other reasons' : g.reason === '' ? 'no reason' : safe(g.reason)), h('span', { class: 'n' }, count(g.count)), h('span', { class: 'sub' }, svg('svg', { class: 'share', viewBox: '0 0 100 4', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('rect', { class: 'back', width: 100, height: 4 }), svg('rect', { class: 'on', width: Math.max(1.5, 100 * g.count / top), height: 4 })), h('span', null, 'newest ', since(g.lastMs, ' ago'))))));
}

function drawRows() {
  const p = parts, f = filter(), open = narrow.matches ? address().q.get('open') : openId(), mixed = !f.reason;
  const key = JSON.stringify([state.items.map(e => e.id), open, mixed, state.next, state.busy, state.all, [...state.selected].length, mayChange()]);
  if (p.rowKey === key && p.list.children.length) return;
  p.rowKey = key;
  const focus = p.list.contains(document.activeElement) ? document.activeElement.closest('.row')?.dataset.id + ' ' + document.activeElement.type : null, top = p.list.scrollTop;
  p.list.replaceChildren(h('div', { class: 'row headline', 'aria-hidden': 'true' }, h('span'), h('span', null, 'message'), h('span', null, mixed ? 'reason and body' : 'body'), h('span', { class: 'r hide' }, 'tries'), h('span', { class: 'r' }, 'age')),
    ...state.items.map(e => h('div', { class: 'row' + (mixed ? ' two' : ''), 'aria-current': String(open === String(e.id)), 'data-id': e.id, onclick: ev => { if (ev.target.type === 'checkbox') return; go({ open: e.id }); if (narrow.matches) openDrawer(e.id); } },
      mayChange() ? h('input', { type: 'checkbox', 'aria-label': 'Select #' + e.id, checked: state.all || state.selected.has(e.id), onchange: ev => { state.all = false; ev.target.checked ? state.selected.add(e.id) : state.selected.delete(e.id); drawBulk(); } }) : h('span'),
      h('button', { class: 'id', 'aria-label': 'Open #' + e.id }, '#' + number(e.id)), h('span', { class: 'what' }, mixed ? h('span', { class: 'reason' }, safe(e.reason)) : null, h('span', { class: 'body mono' }, safe(e.preview.slice(0, 120)))), h('span', { class: 'r hide' }, String(e.delivery)), h('span', { class: 'r' }, since(e.failedMs)))),
    h('p', { class: 'more' }, state.busy ? 'Searching …' : state.next ? [`${count(state.items.length)} shown. `, h('button', { onclick: () => load(true) }, 'Show more')] : state.items.length ? `${count(state.items.length)} shown, that is all` : 'Nothing matches. Search looks at the reason, the body and the id.'));
  p.list.scrollTop = top;
  if (focus) { const [id, type] = focus.split(' '); p.list.querySelector(`.row[data-id="${CSS.escape(id)}"] [type=${CSS.escape(type)}]`)?.focus(); }
}

// How many errors the filter has. Unknown for a text that was not found everywhere yet.
function total() {
  const f = filter();
  if (!state.next) return state.items.length;
  if (f.text) return null;
  return f.reason ? state.reasons?.reasons.find(g => g.reason === f.reason)?.count ?? null : ring.snap?.errorsKept ?? state.kept;
}

function drawBulk() {
  const p = parts, n = state.all ? total() : state.selected.size, on = state.all || n > 0;
  const key = JSON.stringify([n, on, total(), state.items.length, mayChange(), state.job && [state.job.done, state.job.verb, state.job.all]]);
  if (p.bulkKey === key && p.bulk.children.length) return;
  p.bulkKey = key;
  p.bulk.className = 'bulk' + (on || state.job ? ' on' : '');
  if (state.job) {
    const j = state.job;
    p.bulk.replaceChildren(h('span', { class: 'what', role: 'status' }, `${j.verb === 'retry' ? 'Retrying' : 'Dropping'}: ${count(j.done)}${j.all ? ' of ' + count(j.all) : ''}`), h('progress', { max: j.all || 1, value: j.all ? j.done : null, 'aria-label': 'Progress' }), h('button', { onclick: () => { j.stop = true; } }, 'Stop'));
    return;
  }
  if (!mayChange()) { p.bulk.replaceChildren(h('span', { class: 'what' }, `${count(state.items.length)} shown`), h('span', { class: 'muted' }, 'read-only: open and download')); return; }
  const box = h('input', { type: 'checkbox', checked: state.all || on && state.items.every(e => state.selected.has(e.id)), 'aria-label': 'Select all', onchange: e => { state.selected.clear(); state.all = e.target.checked; p.rowKey = p.bulkKey = null; update(); } });
  box.indeterminate = !state.all && n > 0 && !box.checked;
  const t = total(), words = state.all ? (n == null ? 'All that match' : `All ${count(n)} selected`) : n ? `${count(n)} selected` : t == null ? 'Select all that match' : t === 1 ? 'Select it' : `Select all ${count(t)}`;
  p.bulk.replaceChildren(h('span', { class: 'what' }, h('label', null, box, words)), h('button', { disabled: !on, onclick: () => ask('retry') }, 'Retry'), h('button', { class: 'danger', disabled: !on, onclick: () => ask('drop') }, 'Drop'));
}

// ---- one error

function whole(id) {
  const found = state.open.get(id);
  if (found) return found.body ?? null;
  const item = state.items.find(e => String(e.id) === id);
  state.open.set(id, {});
  if (state.open.size > 50) state.open.delete(state.open.keys().next().value);
  get('/errors/' + encodeURIComponent(id), { near: item?.cursor ?? '' }).then(body => state.open.set(id, { body: inPartition(body) }), problem => state.open.set(id, { body: { problem: problem.message } })).then(() => { parts.detailKey = null; drawDetail(); if ($('drawer').open && $('drawer').dataset.error === id) openDrawer(id); });
  return null;
}

function openDrawer(id) {
  const d = $('drawer'), box = h('div');
  d.dataset.error = String(id);
  delete d.dataset.node;
  d.replaceChildren(h('header', null, h('h2', { class: 'muted', id: 'drawer-title' }, 'Error'), h('button', { class: 'ghost square', 'aria-label': 'Close', onclick: () => d.close() }, '✕')), box);
  fillDetail(String(id), box);
  if (!d.open) d.showModal();
}

function drawDetail() {
  const p = parts, id = openId();
  if (!p.detail) return;
  const e = id && state.open.get(id)?.body, key = [id, !!e, state.tab, mayChange(), state.reasons?.counted, filter().reason].join();
  if (p.detailKey === key) return;
  p.detailKey = key;
  fillDetail(id, p.detail);
}

const TABS = [['text', 'Text'], ['json', 'JSON as received'], ['hex', 'Hex']];
function fillDetail(id, box) {
  const e = id && whole(id);
  if (!e || e.problem) { box.replaceChildren(h('p', { class: 'more' }, e?.problem ?? (id ? 'Reading it …' : 'No error is open.'))); return; }
  const focused = box.contains(document.activeElement) && document.activeElement.getAttribute('role') === 'tab';
  const again = () => { parts.detailKey = null; fillDetail(id, box); };
  const tab = state.tab ?? kindOf(e), same = state.reasons?.reasons.find(g => g.reason === e.reason)?.count;
  const move = ev => { const i = TABS.findIndex(t => t[0] === tab), k = { ArrowRight: 1, ArrowLeft: 2 }[ev.key]; if (k) { state.tab = TABS[(i + k) % 3][0]; again(); box.querySelector('[aria-selected=true]').focus(); } };
  const facts = [['failed', [clock(e.failedMs) + ', ', since(e.failedMs, ' ago')]], ['at', 'node ' + e.member], ['failures', `${e.failures}${e.deaths ? `, ${plural(e.deaths, 'death')}` : ''}`], ['size', plural(e.size, 'byte')], ['published', clock(e.publishedMs)], ['delivery', String(e.delivery)]];
  const note = hint(e, tab);
  // The drawer may show what the page below shows, too.
  const mine = box === parts.detail ? 'tab-' : 'drawer-tab-';
  box.replaceChildren(h('div', { class: 'detail-top' }, h('h2', null, icon('error'), 'Message #' + number(e.id)), h('p', { class: 'why' }, safe(e.reason)),
    h('div', { class: 'acts' }, mayChange() ? [h('button', { onclick: () => ask('retry', [e.id]) }, 'Retry'), h('button', { class: 'danger', onclick: () => ask('drop', [e.id]) }, 'Drop')] : null, h('button', { onclick: () => save(e) }, 'Download'))),
    h('dl', { class: 'facts' }, facts.map(([k, v]) => [h('dt', null, k), h('dd', null, v)])),
    h('div', { class: 'scroll' }, h('div', { class: 'tabline' }, h('div', { class: 'seg', role: 'tablist', 'aria-label': 'Body', onkeydown: move }, TABS.map(([k, w]) => h('button', { role: 'tab', id: mine + k, 'aria-selected': String(tab === k), tabindex: tab === k ? '0' : '-1', onclick: () => { state.tab = k; again(); } }, w)))), h('div', { role: 'tabpanel', 'aria-labelledby': mine + tab }, view(e, tab)), note ? h('p', { class: 'hint' }, note) : null,
      e.headers?.length ? h('div', { class: 'also' }, h('h3', null, 'Headers'), h('dl', { class: 'kv' }, e.headers.map(([k, v]) => [h('dt', null, safe(k)), h('dd', null, safe(v))]))) : null,
      h('div', { class: 'also' }, h('h3', null, 'Same reason'), h('p', null, same == null ? '' : `${count(same)} kept. `, filter().reason ? 'The list shows them.' : same > 1 ? h('a', { class: 'link', href: route('errors', { reason: e.reason, open: e.id }) }, 'Show only these') : same === 1 ? 'It is the only one.' : 'Its numbers differ from those of others.'), h('h3', null, 'In a terminal'), h('pre', { class: 'mono' }, `estafeta errors retry --ring ${ring.name} ${e.id}`))));
  if (focused) box.querySelector('[aria-selected=true]')?.focus();
}

function save(e) {
  const link = URL.createObjectURL(new Blob([JSON.stringify({ ...e, text: e.body == null ? textOf(e) : undefined }) + '\n'], { type: 'application/json' }));
  h('a', { href: link, download: `${ring.name.replace('/', '-')}-error-${e.id}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(link), 1000);
}

// ---- changes

function ask(verb, ids) {
  $('drawer').close();
  // If all are on the page, exactly these are meant, and none that came meanwhile.
  const one = ids ?? (state.all ? state.next ? null : state.items.map(e => e.id) : [...state.selected]), all = one ? one.length : total(), f = filter();
  const d = $('ask'), many = verb === 'drop' && (all == null || all > MANY), word = all == null ? 'drop' : String(all);
  const n = all == null ? 'all errors that match' : plural(all, 'error'), it = all === 1 ? 'It is' : 'They are';
  const yes = h('button', { class: verb === 'drop' ? 'danger full' : 'primary', type: 'submit', disabled: many }, (verb === 'drop' ? 'Drop ' : 'Retry ') + n);
  d.className = 'ask';
  d.replaceChildren(h('form', { method: 'dialog', onsubmit: () => run(verb, one, all, f) }, h('h2', { id: 'ask-title' }, (verb === 'drop' ? 'Drop ' : 'Retry ') + n + '?'),
    h('p', null, verb === 'drop' ? `${it} deleted for good. Download first what may be asked for.` : `${all === 1 ? 'It goes' : 'They go'} back to the end of the queue with fresh counts. What failed for a lasting reason will fail again.`), h('p', null, 'The event stream will say that ', h('b', null, safe(ring.meta?.user ?? 'web')), ' did it.'),
    many ? h('p', null, h('label', null, `Type ${word} to go on`, h('input', { type: 'text', autocomplete: 'off', oninput: e => { yes.disabled = e.target.value !== word; } }))) : null,
    h('div', { class: 'acts' }, h('button', { type: 'button', onclick: () => d.close() }, 'Cancel'), yes)));
  d.showModal();
}

// One request per chunk, so that progress can be seen and stopped. A closed page stops as well.
async function run(verb, ids, all, f) {
  const job = state.job = { verb, all, done: 0, stop: false };
  drawBulk();
  let problem = null;
  const step = async body => {
    let after = body.after ?? '';
    for (;;) {
      const answer = await post('/errors/' + verb, { ...body, after });
      job.done += answer.changed;
      drawBulk();
      if (!answer.next || job.stop) return;
      after = answer.next;
    }
  };
  try {
    if (ids) {
      // In the order of the list, so that each search begins where the errors are.
      const place = new Map(state.items.map((e, i) => [e.id, [i, e.cursor]]));
      const sorted = [...ids].sort((a, b) => (place.get(a)?.[0] ?? 0) - (place.get(b)?.[0] ?? 0));
      for (let i = 0; i < sorted.length && !job.stop; i += CHUNK) {
        const some = sorted.slice(i, i + CHUNK), cursors = some.map(id => place.get(id)?.[1]);
        await step({ ids: some, after: cursors.every(Boolean) ? cursors.join() : '' });
      }
    } else await step({ all: true, ...f });
  } catch (e) { problem = e.message; }
  state.job = null; state.all = false; state.selected.clear(); parts.rowKey = null;
  say(problem ?? `${verb === 'retry' ? 'Retried' : 'Dropped'} ${plural(job.done, 'error')}${job.stop ? ', then stopped' : ''}`);
  state.problem = problem;
  const gone = new Set((ids ?? []).map(String));
  if (gone.has(address().q.get('open'))) go({ open: null });
  refresh();
}

function key(e) {
  const list = state.items, i = Math.max(0, list.findIndex(x => String(x.id) === openId())), one = list[i];
  if (!one) return;
  if (e.key === 'j' || e.key === 'k') { go({ open: list[Math.min(list.length - 1, Math.max(0, i + (e.key === 'j' ? 1 : -1)))]?.id }); document.querySelector('.row[aria-current=true]')?.scrollIntoView({ block: 'nearest' }); }
  else if (e.key === 'Enter' && narrow.matches) openDrawer(one.id);
  else if (!mayChange() || state.job) return;
  else if (e.key === 'x') { state.all = false; state.selected.has(one.id) ? state.selected.delete(one.id) : state.selected.add(one.id); parts.rowKey = null; update(); }
  else if (e.key === 'r' || e.key === 'd') ask(e.key === 'r' ? 'retry' : 'drop', state.all || state.selected.size ? undefined : [one.id]);
}

function noErrors() {
  const done = ring.snap?.done;
  return emptyPage('No errors are kept', `${done ? `${plural(done, 'message')} ${done === 1 ? 'was' : 'were'} handled well. ` : ''}What fails for good waits here with its reason and its body, until it is retried or dropped.`, [[`estafeta errors list --ring ${ring.name}`, 'the same list in a terminal'], ['increase(estafeta_ring_failed_total[10m]) > 0', 'an alert for Prometheus, from metrics of this server']], picture(96));
}
