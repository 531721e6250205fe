// What the page knows of its ring, and how it learns it: one stream while somebody looks, and a few requests.
// Times are those of Redis' clock. `skew` is its distance from the clock of this machine.

export const RANGES = { '5m': { words: '5 minutes', every: 30 }, '1h': { words: 'hour', every: 10 }, '24h': { words: '24 hours', every: 60 } };

export const ring = {
  meta: null, name: '', snap: null, skew: 0, lost: null, events: [], charts: null, range: '5m', rates: new Map(), sparks: new Map(), working: new Set(),
  now: () => Date.now() + ring.skew,
};

const listeners = new Set();
export const onChange = f => listeners.add(f);
const tell = what => listeners.forEach(f => f(what));

const path = rest => `api/rings/${encodeURIComponent(ring.name)}${rest}`;
export const url = (rest, params) => { const q = new URLSearchParams(params); for (const [k, v] of [...q]) if (!v) q.delete(k); const s = q.toString(); return path(rest) + (s ? '?' + s : ''); };

export async function get(rest, params, signal) { return answer(await fetch(url(rest, params), { signal, headers: { accept: 'application/json' } })); }
export async function post(rest, body) { return answer(await fetch(path(rest), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })); }
async function answer(response) {
  const text = await response.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* not ours: a proxy answered */ }
  if (!response.ok) throw Object.assign(new Error(value?.detail ?? `the server answered ${response.status}`), { problem: value?.status });
  return value;
}

export async function loadMeta() {
  ring.meta = await answer(await fetch('api/meta', { signal: AbortSignal.timeout(5000) }));
  return ring.meta;
}

// ---- the stream

let source = null, timer = 0, tries = 0, heard = 0;
// A snapshot comes twice a second. Figures that are older than this are not live any more.
export const LATE = 2.5;
// A connection may stay open although nothing comes any more: a cable was pulled, or the server hangs. After so many
// seconds of silence the page takes its server for lost, and connects again.
const SILENCE = 10;
export const link = { next: 0 };

export function connect() {
  clearTimeout(timer);
  source?.close();
  source = null;
  if (document.hidden || !ring.name) return;
  const mine = source = new EventSource(path('/live'));
  heard = Date.now();
  const on = (kind, f) => mine.addEventListener(kind, e => { if (mine === source) { heard = Date.now(); f(JSON.parse(e.data)); } });
  on('snapshot', snapshot);
  on('events', list => { addEvents(list); tell('events'); });
  on('sample', sample);
  on('lost', data => { lose('redis', data.reason); tell('snapshot'); tell('events'); });
  on('bye', () => dropped(mine));
  mine.onerror = () => { if (mine === source) dropped(mine); };
}
// A hidden page needs no stream: a browser allows only six connections to one server.
export function disconnect() { clearTimeout(timer); source?.close(); source = null; }
export const isConnected = () => source != null;
setInterval(() => { if (source && Date.now() - heard > SILENCE * 1000) dropped(source); }, 1000);

async function dropped(mine) {
  mine.close();
  source = null;
  clearTimeout(timer);
  const wait = Math.min(5, 1 + tries++);
  link.next = Date.now() + wait * 1000;
  timer = setTimeout(retry, wait * 1000);
  const name = ring.name, [why, reason] = await explain();
  if (source || document.hidden || name !== ring.name) return;
  lose(why, reason);
  tell('snapshot');
}
// A stream that is refused only says that it failed. A request says why: without Redis, the server still answers.
async function explain() {
  try { await get('', {}, AbortSignal.timeout(1500)); } catch (e) { if (e.problem === 503) return ['redis', e.message]; }
  return ['server', 'The server does not answer.'];
}
async function retry() {
  // This asks for the login again if the server wants one.
  try { await loadMeta(); } catch { /* it is still away */ }
  connect();
}

function lose(why, reason) {
  if (ring.lost?.why === why) { ring.lost.reason = reason; return; }
  const since = ring.lost?.since ?? (ring.snap ? ring.snap.timeMs : ring.now());
  if (ring.snap && why === 'redis') note('redis', 'Redis away, as this page sees it', ring.now());
  ring.lost = { why, since, reason };
}

function snapshot(snap) {
  tries = 0;
  ring.skew = snap.timeMs - Date.now();
  const before = ring.lost;
  ring.lost = null;
  measure(snap);
  ring.snap = snap;
  if (before) {
    if (before.why === 'redis') note('back', 'Redis back', snap.timeMs);
    loadCharts();
    tell('events');
  }
  tell('snapshot');
}

// Rates of members are differences between snapshots that are at least a second apart.
function measure(snap) {
  const seen = new Set();
  for (const m of snap.members) {
    seen.add(m.id);
    const total = m.role === 'generator' ? m.generated : m.processed, last = ring.rates.get(m.id);
    if (!last || last.role !== m.role || total < last.total) { ring.working.delete(m.id); ring.rates.set(m.id, { role: m.role, total, settled: m.processed, at: snap.timeMs, rate: null, marks: [[snap.timeMs, total]] }); continue; }
    const seconds = (snap.timeMs - last.at) / 1000;
    if (seconds < 0.95) continue;
    // The rate of the last seconds: one alone says little about a node that handles a message now and then.
    const marks = [...last.marks, [snap.timeMs, total]].filter(([at], i, all) => i >= all.length - 2 || snap.timeMs - at <= 5500);
    const rate = (total - marks[0][1]) / ((snap.timeMs - marks[0][0]) / 1000 || 1);
    // What it held when it was elected, it may still settle. What it settles later, it handles in office.
    if (m.role === 'generator' && m.processed > last.settled && snap.generator?.inOfficeMs > 10000) ring.working.add(m.id);
    ring.rates.set(m.id, { role: m.role, total, settled: m.processed, at: snap.timeMs, rate, marks });
    const spark = ring.sparks.get(m.id) ?? [];
    spark.push((total - last.total) / seconds);
    if (spark.length > 300) spark.shift();
    ring.sparks.set(m.id, spark);
  }
  for (const id of ring.rates.keys()) if (!seen.has(id)) { ring.rates.delete(id); ring.sparks.delete(id); ring.working.delete(id); }
}

// ---- events

let local = 0;
function note(kind, text, t) { ring.events.push({ id: 'page-' + local++, timeMs: t, kind: 'page', icon: kind, text }); }

function addEvents(list) {
  const known = new Set(ring.events.map(e => e.id)), fresh = list.filter(e => !known.has(e.id));
  if (!fresh.length) return false;
  ring.events = [...ring.events, ...fresh].sort((a, b) => a.timeMs - b.timeMs).slice(-12000);
  return true;
}

// All events since a time, in pages. The stream keeps about 10,000.
let reached = Infinity;
async function loadEvents(since) {
  if (since >= reached) return;
  let after = `${Math.max(0, Math.floor(since))}-0`;
  for (let i = 0; i < 20; i++) {
    const page = await get('/events', { after, count: 500 });
    addEvents(page);
    if (page.length < 500) break;
    after = page.at(-1).id;
  }
  reached = Math.min(reached, since);
}

// ---- charts

let loading = 0;
export async function loadCharts() {
  const mine = ++loading, range = ring.range;
  try {
    const charts = await get('/history', { range });
    if (mine !== loading) return;
    ring.charts = { ...charts, points: charts.points.map(point), loaded: Date.now() };
    await loadEvents(charts.fromMs);
    if (mine === loading) tell('charts');
  } catch { /* the stream says what is wrong */ }
}
const point = p => ({ t: p.timeMs, generated: p.generated, handled: p.handled, failed: p.failed, waiting: p.waiting, later: p.later, flight: p.inFlight, oldest: p.oldestWaitingMs / 1000, wait: p.waitMs?.map(x => x / 1000), work: p.handlingMs?.map(x => x / 1000) });

function sample(p) {
  const charts = ring.charts, fresh = point(p);
  ring.latest = fresh;
  if (!charts) return;
  const last = charts.points.at(-1);
  if (charts.range === '5m') {
    if (last && fresh.t - last.t > 2600) { loadCharts(); return; }
    if (last && Math.floor(last.t / 1000) === Math.floor(fresh.t / 1000)) charts.points.pop();
    if (!last || fresh.t >= last.t) charts.points.push(fresh);
    while (charts.points.length > 330) charts.points.shift();
  }
  if (Date.now() - charts.loaded > RANGES[charts.range].every * 1000) { charts.loaded = Date.now(); loadCharts(); }
}

export function choose(name) {
  disconnect();
  reached = Infinity;
  Object.assign(ring, { name, snap: null, lost: null, events: [], charts: null, latest: null });
  ring.rates.clear(); ring.sparks.clear(); ring.working.clear();
  connect();
  if (name) loadCharts();
}
export function setRange(range) { if (range !== ring.range) { ring.range = range; if (ring.name) loadCharts(); } }
