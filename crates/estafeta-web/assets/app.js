// The frame of the page: routes, freshness, keys. The address holds the view, the ring, the range and what is open.
import { svg, icon, count } from './charts.js';
import { $, h, set, keep, say, age, safe } from './dom.js';
import { ring, onChange, connect, disconnect, choose, setRange, loadMeta, loadCharts, RANGES, LATE } from './live.js';
import { overview, setRoute, verdict, retryIn, emptyPage } from './overview.js';
import { errors, setErrorsRoute } from './errors.js';
import { schedules, scheduleCount, learnSchedules } from './schedules.js';

const VIEWS = { ring: overview, errors, schedules }, app = { view: '', held: false, fresh: '' };

function address() {
  const [path, query] = location.hash.replace(/^#/, '').split('?'), [, view = ''] = path.split('/');
  return { view: VIEWS[view] ? view : 'ring', q: new URLSearchParams(query) };
}
function href(view, params = {}) {
  const q = new URLSearchParams();
  if (ring.meta && ring.name !== ring.meta.rings[0]) q.set('ring', ring.name);
  for (const k in params) if (params[k] != null && params[k] !== '') q.set(k, params[k]);
  const s = q.toString();
  return '#/' + (view === 'ring' ? '' : view) + (s ? '?' + s : '');
}
// Changes the address without a step in the browser's history.
function go(changes) {
  const { view, q } = address();
  for (const k in changes) changes[k] == null || changes[k] === '' ? q.delete(k) : q.set(k, changes[k]);
  q.delete('ring');
  window.history.replaceState(null, '', href(view, Object.fromEntries(q)));
  route();
}
setRoute(href);
setErrorsRoute(address, go, href);

function route() {
  const { view, q } = address(), main = $('main'), wanted = q.get('ring') ?? ring.meta?.rings[0];
  if (ring.meta && !ring.meta.rings.includes(wanted)) { noSuchRing(wanted); return; }
  if (wanted && wanted !== ring.name && ring.meta) { choose(wanted); app.view = ''; }
  setRange(RANGES[q.get('range')] ? q.get('range') : '5m');
  if (view !== app.view) { app.view = view; main.classList.remove('stale'); VIEWS[view].show(main); window.scrollTo(0, 0); }
  else if (view === 'errors') errors.route();
  else VIEWS[view].update();
  main.removeAttribute('aria-busy');
  if (ring.meta) showMeta();
  frame();
}

function noSuchRing(name) {
  if (ring.name !== '' || app.view !== 'none') { choose(''); app.view = 'none'; $('main').replaceChildren(emptyPage('No such ring', `This server shows no ring “${name}”. Choose one of its rings above.`)); }
  $('main').removeAttribute('aria-busy');
  showMeta();
  frame();
}

function frame() {
  const { view } = address(), n = ring.snap?.errorsKept ?? 0, fresh = $('fresh'), v = ring.snap || ring.lost ? verdict() : null;
  for (const a of document.querySelectorAll('[data-view]')) { a.dataset.view === view ? a.setAttribute('aria-current', 'page') : a.removeAttribute('aria-current'); a.setAttribute('href', href(a.dataset.view)); }
  set($('nav-errors'), n ? count(n) : ''); $('nav-errors').className = 'num' + (n ? ' bad' : '');
  set($('nav-schedules'), scheduleCount() ? String(scheduleCount()) : '');
  $('readonly').hidden = !ring.meta || ring.meta.mayChange;
  const old = ring.snap ? (ring.now() - ring.snap.timeMs) / 1000 : 0, late = old > LATE;
  const [cls, text] = ring.lost?.why === 'redis' ? ['away', 'Redis away'] : app.held ? ['late', 'held'] : ring.lost ? ['late', ring.snap ? age((ring.now() - ring.lost.since) / 1000) + ' old' : 'no server'] : !ring.snap ? ['late', ring.name ? 'loading' : 'no ring'] : late ? ['late', age(old) + ' old'] : ['live', 'live'];
  if (app.fresh && app.fresh !== cls) say(text);
  app.fresh = cls; fresh.className = 'fresh ' + cls; set(fresh, text);
  notice();
  document.title = (!v || v.word === 'Healthy' ? '' : v.word + ' · ') + (ring.name ? ring.name + ' · ' : '') + 'estafeta';
}

function notice() {
  const box = $('notice'), lost = ring.lost?.why === 'server';
  box.hidden = !lost;
  document.body.classList.toggle('noticed', lost);
  if (!lost) { box.replaceChildren(); return; }
  if (!box.firstChild) box.append(h('b', null, 'Reconnecting'), app.lostText = h('span', { 'aria-hidden': 'true' }), h('button', { onclick: connect }, 'Try now'));
  set(app.lostText, `the server has not answered for ${age((ring.now() - ring.lost.since) / 1000)}; next try in ${retryIn()} s`);
}

function theme(next) {
  const dark = next ? next === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  if (next) { document.documentElement.dataset.theme = next; try { localStorage.setItem('estafeta-theme', next); } catch { /* private window: for this page only */ } }
  const b = $('theme');
  b.setAttribute('aria-label', dark ? 'Use light colours' : 'Use dark colours'); b.title = b.getAttribute('aria-label') + ' (t)';
  b.replaceChildren(svg('svg', { width: 16, height: 16, viewBox: '0 0 16 16', 'aria-hidden': 'true' }, svg('circle', { cx: 8, cy: 8, r: 6, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5 }), svg('path', { d: 'M8 2A6 6 0 0 1 8 14Z', fill: 'currentColor' })));
  b.onclick = () => theme(dark ? 'light' : 'dark');
}

function showHelp() {
  const d = $('ask'), keys = [['1 2 3', 'ring, errors, schedules'], ['/', 'search'], ['j k', 'next, previous error'], ['x', 'select it'], ['r d', 'retry, drop'], ['← →', 'cursor, when the clock has the focus'], ['p', 'hold the picture, go on'], ['t', 'light or dark'], ['Esc', 'close']];
  const shapes = [['generator', 'generator, take-over'], ['handler', 'handler, alive'], ['join', 'joined, back'], ['left', 'left, resigned'], ['frozen', 'expired: its lease ran out'], ['dead', 'absent: its connection is gone'], ['error', 'errors, losses'], ['warn', 'a source or a handler failed'], ['redis', 'Redis away'], ['person', 'a person did it']];
  d.className = 'ask wide';
  d.replaceChildren(h('form', { method: 'dialog' }, h('h2', { id: 'ask-title' }, 'Keys and shapes'), h('div', { class: 'keys' }, h('div', null, h('h3', null, 'Keys'), h('ul', null, keys.map(([k, t]) => h('li', null, h('span', null, k.split(' ').map(x => [h('kbd', null, x), ' '])), t)))), h('div', null, h('h3', null, 'Shapes'), h('ul', { class: 'shapes' }, shapes.map(([k, t]) => h('li', null, icon(k, 16), t))))), h('div', { class: 'acts' }, h('button', { class: 'primary' }, 'Close'))));
  d.showModal();
}

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
  if (e.target.matches('input:not([type=checkbox]), select')) { if (e.key === 'Escape') e.target.blur(); return; }
  const views = { 1: 'ring', 2: 'errors', 3: 'schedules' };
  if (views[e.key]) location.hash = href(views[e.key]);
  else if (e.key === '/') { e.preventDefault(); if (address().view !== 'errors') location.hash = href('errors'); setTimeout(() => $('search')?.focus(), 50); }
  else if (e.key === 't') $('theme').click();
  else if (e.key === 'p') { app.held = !app.held; app.held ? disconnect() : connect(); frame(); }
  else if (e.key === '?') showHelp();
  else if (app.view === 'errors') errors.key(e);
});
document.querySelector('.skip').addEventListener('click', e => { e.preventDefault(); $('main').focus(); });
window.addEventListener('hashchange', route);
window.addEventListener('online', () => { if (ring.lost && !app.held) connect(); });
document.addEventListener('visibilitychange', () => { if (document.hidden) disconnect(); else if (!app.held) { connect(); loadCharts(); } });
for (const id of ['drawer', 'ask']) $(id).addEventListener('click', e => { if (e.target === e.currentTarget) e.currentTarget.close(); });
$('help').addEventListener('click', showHelp);
$('ring').addEventListener('change', e => { const name = e.target.value, { view } = address(); ring.snap = null; location.hash = '#/' + (view === 'ring' ? '' : view) + (name === ring.meta.rings[0] ? '' : '?ring=' + encodeURIComponent(name)); });

onChange(what => {
  const { view } = address();
  if (view === 'ring') ({ snapshot: overview.update, charts: () => { overview.updateCharts(); overview.updateEvents(); }, events: () => { overview.updateEvents(); overview.updateCharts(); } })[what]?.();
  else if (what === 'snapshot') VIEWS[view].update();
  if (ring.snap && !ring.lost) learnSchedules();
  frame();
});

function showMeta() {
  const m = ring.meta, pick = $('ring');
  const names = m.rings.includes(ring.name) ? m.rings : ['', ...m.rings], key = names.join() + '\n' + ring.name;
  // A list that a person has opened is not built anew while its rings are the same.
  keep(pick, key, () => names.map(n => h('option', { value: n, selected: n === ring.name, disabled: n === '' }, n || 'choose a ring')));
  keep($('foot'), [m.version, m.redis, m.user].join(), () => [h('span', null, `estafeta ${m.version} · `, safe(m.redis), ` · changes are signed as `, safe(m.user)), h('a', { href: 'api/openapi.json' }, 'API'), h('a', { href: 'metrics' }, 'metrics')]);
}

async function start() {
  let stored = null;
  try { stored = localStorage.getItem('estafeta-theme'); } catch { /* no storage, no memory */ }
  theme(stored);
  for (;;) {
    try { await loadMeta(); break; } catch (e) { $('main').replaceChildren(h('p', { class: 'loading' }, `The server does not answer: ${e.message}`)); await new Promise(f => setTimeout(f, 2000)); }
  }
  route();
  // Ages grow even if nothing comes.
  setInterval(() => { if (!document.hidden) { if (app.view === 'ring' && !app.held) overview.update(); frame(); } }, 1000);
  setInterval(async () => { if (!document.hidden && !ring.lost) { try { await loadMeta(); if (!ring.meta.rings.includes(ring.name)) route(); showMeta(); } catch { /* the stream says it */ } } }, 15000);
}
start();
