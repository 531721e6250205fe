// The ring: one sentence of verdict, the figures behind it, their history, the members and the events.
import { Score, svg, icon, shape, swatch, ringGlyph, spark, tableRows, count, span, clock } from './charts.js';
import { $, h, set, keep, say, safe, age, plural, copyable } from './dom.js';
import { ring, RANGES, LATE, link } from './live.js';

const parts = { score: null };
export const overview = { show, update, updateCharts, updateEvents, emptyPage };
const ago = t => age((ring.now() - t) / 1000);
// Figures of a ring that nobody sees any more have the time at which they were true.
const seenAt = () => ring.lost ? ring.snap.timeMs : ring.now();

// ---- members as the pictures know them

// The generator of the demo handles nothing, unless it was started so: then it settles messages.
const handles = m => m.role !== 'reader' && m.duties !== 'generate' && (m.role !== 'generator' || ring.snap.application !== 'estafeta-demo' || ring.working.has(m.id));
// A column has room for the first part of a host name. An address is shown whole.
const firstLabel = host => /^[a-z][a-z0-9-]*\.[a-z0-9.-]+$/i.test(host) ? host.split('.')[0] : host;
const KINDS = { alive: 'well', expired: 'frozen', absent: 'dead', ahead: 'frozen' };
export function members() {
  return (ring.snap?.members ?? []).map(m => ({ number: m.id, role: m.role, rank: m.rank, host: m.host, pid: m.pid, word: m.state, state: KINDS[m.state] ?? 'frozen', handles: handles(m), mayLead: m.role !== 'reader' && m.duties !== 'handle', rate: ring.rates.get(m.id)?.rate ?? null, held: m.inFlight, lanes: m.lanes, stuck: m.stuck, joined: ring.snap.timeMs - m.ageMs, lease: m.leaseMs, generated: m.generated, processed: m.processed, failed: m.failed }));
}
// The generator comes first, so that it is at the top of the ring.
const nodes = () => members().filter(m => m.role !== 'reader').sort((a, b) => (b.role === 'generator') - (a.role === 'generator'));
const kindOf = m => m.state === 'well' ? m.role === 'reader' ? 'left' : m.role : m.state;

// The address of Redis, without what every address has.
const redisName = () => (ring.meta?.redis ?? 'Redis').replace(/^rediss?(\+unix)?:\/\//, '').replace(/\/0$/, '');

// ---- verdict: does a person have to get up?

export function verdict() {
  const s = ring.snap, all = nodes(), handlers = all.filter(m => m.handles), alive = handlers.filter(m => m.state === 'well').length;
  if (!s) return ring.lost ? { tone: 'bad', word: ring.lost.why === 'redis' ? 'Redis away' : 'No server', why: [ring.lost.reason ?? ''] } : { tone: 'stale', word: 'Loading', why: [] };
  if (ring.lost?.why === 'redis') return { tone: 'bad', word: 'Redis away', why: [`${redisName()} has not answered for ${ago(ring.lost.since)}.`, 'Nodes keep what they hold, and try again.'] };
  const state = healthOf(s, all, handlers, alive);
  if (ring.lost) return { tone: 'stale', word: 'Was ' + state.word.toLowerCase(), why: ['This page lost its server.', 'The ring runs without it.'] };
  return state;
}

function healthOf(s, all, handlers, alive) {
  // A ring takes only nodes of its own application.
  const isDemo = s.application == null || s.application === 'estafeta-demo', run = isDemo ? ['Start a node: ', h('code', null, 'estafeta run --ring ' + ring.name)] : ['Start a node of ', h('b', null, safe(s.application)), '.'], waiting = plural(s.waiting, 'message') + (s.waiting === 1 ? ' waits' : ' wait');
  const oldest = s.waiting ? `, the oldest for ${span(s.oldestWaitingMs / 1000)}` : '';
  if (!s.balanced) return { tone: 'bad', word: 'Does not add up', why: ['The published messages are not the sum of the terms below.', 'Keep a copy of the data of Redis, and report this.'] };
  const candidates = all.filter(m => m.mayLead);
  if (candidates.length && s.generator?.state !== 'alive') {
    const heir = candidates.find(m => m.rank === 0 && m.state === 'well') ?? candidates.find(m => m.state === 'well');
    return { tone: 'bad', word: 'No generator', why: [s.generator ? `Node ${s.generator.member} is ${s.generator.state ?? 'gone'}, and no node has taken over yet.` : 'No node is in office.', heir ? ['First in line: ', h('button', { class: 'inline', onclick: () => openNode(heir.number) }, 'node ' + heir.number), '. Read its log.'] : run] };
  }
  if (!alive) return { tone: 'bad', word: 'Nobody handles', why: [`${waiting}${oldest}.`, run] };
  const short = s.durability?.find(d => d.shortfall);
  if (short) return { tone: 'bad', word: 'Not confirmed', why: [`Members ask for ${short.level}, and Redis cannot confirm it.`, safe(short.shortfall)] };
  const pauses = [['Producing', s.producingPause], ['Handling', s.handlingPause]].filter(([, p]) => p);
  if (pauses.length) return { tone: 'warn', word: 'Paused', why: [`${pauses.map(([w, p]) => `${w} is paused${p.leftMs == null ? '' : ` for ${span(p.leftMs / 1000)}`}.`).join(' ')} ${waiting}${oldest}.`, h('a', { class: 'link', href: route('schedules') }, 'Resume under Schedules')] };
  if (!candidates.length && s.published > s.submitted) return { tone: 'warn', word: 'No generator', why: ['No node of this ring may generate.', 'New messages come from publishers only.'] };
  const stuck = all.reduce((n, m) => n + (m.stuck ?? 0), 0);
  if (stuck) return { tone: 'warn', word: 'Lanes are stuck', why: [`${plural(stuck, 'lane')} ${stuck === 1 ? 'runs' : 'run'} beyond the time limit of the handler.`, 'The list of members shows where.'] };
  if (s.oldestWaitingMs > 30000) return { tone: 'warn', word: 'Falling behind', why: [`${waiting}${oldest}.`, 'More nodes, or more lanes per node, would help.'] };
  const bad = all.filter(m => m.state !== 'well').length, errors = s.errorsKept;
  return { tone: 'good', word: 'Healthy', why: [bad ? `${plural(alive, 'node')} ${alive === 1 ? 'handles' : 'handle'} messages; ${bad} ${bad === 1 ? 'is' : 'are'} silent or dead.` : `${plural(alive, 'node')} ${alive === 1 ? 'handles' : 'handle'} messages.`, errors ? [h('a', { href: route('errors'), class: 'link' }, plural(errors, 'error')), errors === 1 ? ' waits for a decision.' : ' wait for a decision.'] : 'No errors are kept.'] };
}

let route = view => '#/' + view;
export const setRoute = f => { route = f; };

// ---- the view

const STRIPS = [
  { id: 'office', title: 'In office', note: 'who generates', cls: 'lanes', lanes: true },
  { id: 'rate', title: 'Throughput', note: 'per second', cls: 'tall', panes: [
    { least: 4, series: [{ label: 'handled', tone: 'done', form: 'area', get: s => s.handled, format: rate }, { label: 'generated', tone: 'office', form: 'line', get: s => s.generated, format: rate }] },
    { height: 22, least: 2, series: [{ label: 'failed', tone: 'fault', form: 'bars', get: s => s.failed, format: rate }] }] },
  { id: 'queue', title: 'Queue', note: 'messages', cls: 'mid', panes: [
    { least: 10, series: [{ label: 'waiting', tone: 'waits', form: 'area', get: s => s.waiting, format: count }, { label: 'later', tone: 'faint', form: 'dash', get: s => s.later, format: count }] },
    { height: 22, least: 0.5, label: v => span(v).replace('.00', ''), series: [{ label: 'oldest', tone: 'waits', form: 'line', get: s => s.oldest, format: span }] }] },
  { id: 'wait', title: 'Wait', note: 'before handling', panes: [{ scale: 'log', fan: true, series: quantiles('wait', 'waits') }] },
  { id: 'work', title: 'Handling', note: 'per message', panes: [{ scale: 'log', fan: true, series: quantiles('work', 'done') }] },
];
function quantiles(key, tone) {
  return ['p99', 'p95', 'p50'].map((label, i) => ({ label, tone, form: ['thin', 'mid', 'thick'][i], named: key === 'wait' ? 'wait ' : 'handling ', get: s => s[key]?.[2 - i], format: span }));
}
function rate(n) { return n == null ? '–' : n > 0 && n < 9.95 ? n.toFixed(1).replace(/\.0$/, '') : count(n); }

function show(main) {
  const p = Object.assign(parts, { kpi: {}, ledger: {}, rows: new Map(), tabled: 0, shown: null });
  const cell = (id, label) => { const c = p.kpi[id] = { value: h('dd', { class: 'value' }), note: h('dd', { class: 'note' }) }; c.box = h('dl', { class: 'kpi', 'data-kpi': id }, h('dt', null, label), c.value, c.note); return c.box; };
  p.verdict = h('section', { class: 'panel verdict', 'aria-label': 'Verdict' },
    h('div', { class: 'verdict-main' },
      h('div', { class: 'word' }, p.glyph = h('span'), h('div', null, p.word = h('h2', { id: 'verdict' }), p.why = h('p'))),
      h('div', { class: 'kpis' }, cell('generator', 'Generator'), cell('office', 'In office for'), cell('handlers', 'Handlers alive'), cell('oldest', 'Oldest waiting'), cell('redis', 'Redis'), cell('picture', 'This picture'))),
    p.ledger.box = h('div', { class: 'ledger' }));
  const strips = STRIPS.map(s => {
    const values = (s.panes ?? []).flatMap((x, i) => x.series.map(c => ({ ...c, low: i > 0, cell: h('dd', null, '–') })));
    return { ...s, values, plot: h('div', { class: 'plot' }), table: h('table') };
  });
  const ruler = h('div', { class: 'plot', tabindex: '0', role: 'slider', 'aria-label': 'Cursor over all charts', 'aria-valuemin': '0', 'aria-valuemax': '100', 'aria-valuenow': '100', 'aria-valuetext': 'now' });
  p.scoreBox = h('section', { class: 'panel score', 'aria-label': 'History' },
    h('header', null, p.title = h('h2'), p.readout = h('span', { class: 'readout' }),
      h('nav', { class: 'seg', 'aria-label': 'Range' }, Object.keys(RANGES).map(r => h('a', { href: route('', { range: r === '5m' ? null : r }), 'data-range': r }, r)))),
    strips.map(s => h('section', { class: 'strip ' + (s.cls ?? ''), 'aria-label': s.title },
      h('div', { class: 'strip-head' }, h('h3', null, s.title, ' ', h('span', null, s.note)),
        s.lanes ? p.terms = h('dl', { class: 'legend' }) : h('dl', { class: 'legend' }, s.values.map(c => h('div', { class: c.low ? 'low' : null }, h('dt', null, swatch(c.form, c.tone), c.label), c.cell)))),
      s.plot, h('div', { class: 'sr' }, s.table))),
    h('div', { class: 'ruler' }, h('p', null, 'time in ' + zone()), ruler));
  p.strips = strips;
  const columns = [['no', 'node'], ['role', 'role'], ['rank', 'rank', 1], ['host', 'host'], ['rate', 'rate/s', 1], ['held', 'held', 1], ['state', 'state']];
  p.members = h('section', { class: 'panel members', 'aria-label': 'Members' },
    h('header', null, h('h2', null, 'Members'), p.memberNote = h('span', { class: 'aside' })),
    h('div', { class: 'scroll' }, h('table', { 'aria-label': 'Members' }, h('thead', null, h('tr', null, columns.map(([c, t, r]) => h('th', { scope: 'col', class: `c-${c} ${r ? 'r' : ''}` }, t)))), p.tbody = h('tbody'))));
  p.events = h('ol', { tabindex: '0', 'aria-label': 'Events, newest first' });
  main.replaceChildren(h('h1', { class: 'sr' }, 'Ring ' + ring.name), p.verdict, h('div', { class: 'overview' }, p.scoreBox,
    h('div', { class: 'side' }, p.members, h('section', { class: 'panel events', 'aria-label': 'Events' }, h('header', null, h('h2', null, 'Events'), h('span', { class: 'aside' }, 'point at one to see it above')), p.events))));
  p.score = new Score(p.scoreBox, strips, ruler, readout);
  update();
  updateEvents();
}

function readout(s, at) {
  const p = parts;
  if (at == null) { p.readout.replaceChildren(); return; }
  const back = (p.score.data.to - at) / 1000;
  p.readout.replaceChildren(h('b', null, clock(at)), ' · ' + (back < 1 ? 'now' : age(back) + ' ago'), s?.gap ? h('b', { class: 'fault' }, ' · ' + s.gap) : '');
  const r = p.scoreBox.querySelector('[role=slider]');
  r.setAttribute('aria-valuenow', Math.round(100 - 100 * back / ((p.score.data.to - p.score.data.from) / 1000)));
  r.setAttribute('aria-valuetext', clock(at) + ': ' + (s?.gap ?? p.strips.flatMap(x => x.values).filter(c => c.get(s) != null).map(c => `${c.named ?? ''}${c.label} ${c.format(c.get(s))}`).join(', ')));
}

function fill(id, value, note, alarm) {
  const c = parts.kpi[id];
  if (typeof value === 'string') { c.key = null; set(c.value, value); } else if (c.key !== value.key) { c.value.replaceChildren(...value.nodes); c.key = value.key; }
  keep(c.note, note.key ?? note, () => note.nodes ?? [note]);
  c.note.title = c.note.textContent;
  c.box.classList.toggle('alarm', !!alarm);
}

const isEmpty = () => ring.snap && ring.snap.members.length === 0 && ring.snap.published === 0;

function update() {
  const p = parts, main = $('main'), s = ring.snap, state = !s ? ring.lost ? 'lost' : 'loading' : isEmpty() ? 'empty' : 'ring';
  if (state !== 'ring') {
    const key = state === 'lost' ? verdict().word + ring.lost.reason : state;
    if (p.shown !== key) { p.shown = key; main.replaceChildren(state === 'loading' ? h('p', { class: 'loading' }, 'Reading the ring …') : state === 'lost' ? lostPage() : nobody()); }
    return;
  }
  if (p.shown !== 'ring' && p.shown !== null) { show(main); return; }
  p.shown = 'ring';
  const v = verdict(), g = s.generator, gone = g?.state !== 'alive', all = members(), live = nodes();
  p.verdict.className = 'panel verdict ' + v.tone + (ring.lost ? ' stale-values' : '');
  if (p.word.textContent && p.word.textContent !== v.word) say(v.word);
  set(p.word, v.word);
  keep(p.why, v.why.flat().map(x => x.textContent ?? x).join('|'), () => v.why.map(line => h('span', null, line)));
  main.classList.toggle('stale', !!ring.lost);
  keep(p.glyph, live.map(m => m.number + m.role + m.state).join(), () => [ringGlyph(live)]);
  fill('generator', gone ? 'none' : { key: g.member, nodes: [icon('generator', 16), h('button', { onclick: () => openNode(g.member) }, 'node ' + g.member)] }, gone ? g ? `node ${g.member} is ${g.state ?? 'gone'}` : 'no node in office' : { key: g.host + g.pid, nodes: [safe(g.host), `, pid ${g.pid}`] }, gone && live.some(m => m.mayLead));
  fill('office', gone ? '–' : age((g.inOfficeMs + (ring.lost ? 0 : ring.now() - s.timeMs)) / 1000), g ? 'epoch ' + g.epoch : 'no epoch', false);
  const handlers = live.filter(m => m.handles), alive = handlers.filter(m => m.state === 'well'), lanes = alive.reduce((n, m) => n + (m.lanes ?? 0), 0);
  fill('handlers', alive.length === 0 ? 'none' : `${alive.length} of ${handlers.length}`, alive.length === handlers.length ? `${lanes ? plural(lanes, 'lane') + ', ' : ''}${count(s.inFlight)} in flight` : `${handlers.filter(m => m.state === 'dead').length} absent, ${handlers.filter(m => m.state === 'frozen').length} expired`, alive.length === 0);
  fill('oldest', s.waiting ? span(s.oldestWaitingMs / 1000) : 'none', `${s.waiting ? count(s.waiting) + (s.waiting === 1 ? ' waits' : ' wait') : 'nothing waits'}${s.later ? `, ${count(s.later)} for later` : ''}`, s.oldestWaitingMs > 30000);
  const away = ring.lost?.why === 'redis';
  fill('redis', away ? 'away' : s.redisMs == null ? '–' : span(s.redisMs / 1000), away ? 'tried twice a second' : redisName(), away);
  const since = ring.lost?.since ?? s.timeMs, late = ring.lost || ring.now() - since > LATE * 1000;
  fill('picture', late ? ago(since) + ' old' : 'live', (late ? 'from ' : 'taken ') + clock(s.timeMs), false);
  p.kpi.picture.box.classList.toggle('late', !!late);
  set(p.memberNote, ring.lost ? 'as of ' + clock(s.timeMs) : `${all.length} on ${plural(new Set(all.map(m => m.host)).size, 'host')}`);
  if ($('drawer').open && $('drawer').dataset.node) fillNode($('drawer'));
  ledger(s);
  updateMembers(all);
  updateCharts();
}

function ledger(s) {
  const p = parts, optional = ['later', 'cancelled', 'lost'];
  const sums = [['published', s.published], ['waiting', s.waiting], ['later', s.later], ['in flight', s.inFlight], ['done', s.done], ['cancelled', s.cancelled], ['errors kept', s.errorsKept], ['errors taken', s.errorsTaken], ['lost', s.lost]].filter(([name, n]) => n || !optional.includes(name));
  const tone = !s.balanced ? 'fault' : ring.lost ? 'faint' : 'done', word = (s.balanced ? 'Balance add' : 'Balance did not add').replace('did not add', 'does not add') + (s.balanced ? ring.lost ? 'ed up' : 's up' : ' up');
  keep(p.ledger.box, word + sums.map(x => x[0]).join(), () => [h('span', { class: 'lead ' + tone }, icon(s.balanced ? 'well' : 'dead', 12), word),
    ...sums.flatMap(([name], i) => [i ? h('span', { class: 'op' }, i === 1 ? '=' : '+') : null, h('span', null, name + ' ', p.ledger[name] = h('b'))]),
    p.ledger.totals = h('span', { class: 'totals' })].filter(Boolean));
  for (const [name, n] of sums) set(p.ledger[name], count(n));
  set(p.ledger.totals, `returned ${count(s.returned)} · fenced ${count(s.fenced)} · take-overs ${count(s.takeovers)}`);
}
export const zone = () => { const m = -new Date().getTimezoneOffset(), rest = Math.abs(m) % 60; return m === 0 ? 'UTC' : `UTC${m < 0 ? '−' : '+'}${Math.floor(Math.abs(m) / 60)}${rest ? ':' + String(rest).padStart(2, '0') : ''}`; };

// ---- history

function updateCharts() {
  const p = parts, charts = ring.charts;
  if (!p.score || p.shown !== 'ring') return;
  set(p.title, 'The last ' + RANGES[ring.range].words);
  for (const a of p.scoreBox.querySelectorAll('[data-range]')) a.setAttribute('aria-current', String(a.dataset.range === ring.range));
  const length = { '5m': 3e5, '1h': 36e5, '24h': 864e5 }[ring.range], to = ring.now(), from = to - length;
  const mine = charts?.range === ring.range ? charts : { points: [], gaps: [], stepMs: 1000 };
  const gaps = mine.gaps.map(g => ({ from: g.fromMs, to: g.toMs, why: g.why })).filter(g => g.to > from);
  if (ring.lost) gaps.push({ from: ring.lost.since, to, why: ring.lost.why === 'redis' ? 'no Redis' : 'not seen' });
  const data = { range: ring.range, step: mine.stepMs / 1000, from, to, samples: mine.points.filter(q => q.t >= from - 1000), gaps, terms: terms(from, to) };
  data.begins = data.samples[0]?.t - from > 5000 + 3 * mine.stepMs && !gaps.some(g => g.from < data.samples[0].t) ? data.samples[0].t : null;
  data.latest = ring.lost || !ring.latest || to - ring.latest.t > 4000 ? { gap: 'no sample' } : ring.latest;
  const marks = [['takeover', 'take-overs', data.terms.filter(t => !t.open && t.silence != null).length], ['dead', 'died', data.terms.filter(t => t.end === 'dead').length], ['frozen', 'silent', data.terms.filter(t => t.end === 'frozen').length]];
  keep(p.terms, marks.join(), () => marks.map(([k, w, n]) => h('div', null, h('dt', null, icon(k), w), h('dd', null, String(n)))));
  p.score.show(data);
  if (Date.now() - p.tabled > 10000 || p.tabledRange !== ring.range) { p.tabled = Date.now(); p.tabledRange = ring.range; for (const s of p.strips) describe(s, data); }
}

// Who was in office, from the events: when each term began and how it ended. Each partition has its own office.
function terms(from, to) {
  const s = ring.snap, found = ring.events.filter(e => e.kind !== 'page');
  if (!s?.partitions) return termsOf(found, s?.generator, from, to);
  return s.partitions.flatMap((p, i) => termsOf(found.filter(e => e.id.startsWith(i + ':')), p.generator && { ...p.generator, member: `${i}:${p.generator.member}` }, from, to));
}
function termsOf(found, g, from, to) {
  const list = [];
  let now = null;
  const end = (t, why) => { if (now) { now.to = t; now.end = why; now = null; } };
  for (const e of found) {
    const t = e.timeMs;
    if (e.kind === 'tookOffice') { end(t, null); list.push(now = { member: e.member, from: t, to: t, silence: null, end: null }); }
    else if (e.kind === 'tookOver') {
      let prior = list.at(-1);
      if (prior?.member !== e.from) list.push(prior = { member: e.from, from: Math.min(from, t - e.silenceMs), to: t, silence: null, end: null, open: true });
      if (now === prior || prior.open) prior.to = t - e.silenceMs;
      now = null;
      const grave = found.find(x => x.kind === 'buried' && x.member === e.from && Math.abs(x.timeMs - t) < 30000);
      if (grave) prior.end = grave.why === 'absent' ? 'dead' : 'frozen';
      if (prior.end === 'frozen') prior.until = t;
      list.push(now = { member: e.member, from: t, to: t, silence: e.silenceMs / 1000, end: null });
    } else if ((e.kind === 'resigned' || e.kind === 'left') && now?.member === e.member) end(t, null);
    else if (e.kind === 'buried' && now?.member === e.member) end(t, e.why === 'absent' ? 'dead' : 'frozen');
  }
  const known = ring.lost ? ring.lost.since : to;
  if (g && now?.member !== g.member) list.push(now = { member: g.member, from: ring.snap.timeMs - g.inOfficeMs, to: known, silence: null, end: null, open: true });
  if (now) { now.to = known; now.now = !ring.lost && g?.member === now.member; }
  return list.filter(x => (x.until ?? x.to) > from).map(x => ({ ...x, open: x.open || x.from < from, from: Math.max(x.from, from) }));
}

function describe(s, data) {
  const head = s.lanes ? ['node', 'from', 'to', 'silence before', 'ended'] : ['time', ...s.values.map(c => c.label)];
  const ends = { dead: 'died', frozen: 'fell silent' };
  const rows = s.lanes ? data.terms.map(t => [String(t.member), clock(t.from), t.now ? 'still in office' : clock(t.to), t.silence == null ? 'none' : span(t.silence), t.now ? 'not yet' : ends[t.end] ?? 'by itself']) : tableRows(data.samples, s.values);
  s.table.replaceChildren(h('caption', null, s.title + ', the last ' + RANGES[data.range].words), h('thead', null, h('tr', null, head.map(t => h('th', { scope: 'col' }, t)))), h('tbody', null, rows.map(r => h('tr', null, r.map(t => h('td', null, t))))));
}

// ---- members

const METER = 28;
function updateMembers(all) {
  const p = parts, first = m => m.role === 'generator' ? -2 : m.role === 'reader' ? 1e9 : m.state !== 'well' ? -1 : m.rank ?? 1e8;
  const order = [...all].sort((a, b) => first(a) - first(b) || String(a.number).localeCompare(String(b.number), 'en', { numeric: true })), most = Math.max(1e-9, ...all.filter(m => m.role === 'handler').map(m => m.rate ?? 0));
  for (const [number, row] of p.rows) if (!all.some(m => m.number === number)) { row.el.remove(); p.rows.delete(number); }
  order.forEach((m, at) => {
    let row = p.rows.get(m.number);
    if (!row) {
      row = { role: h('td', { class: 'c-role' }), rank: h('td', { class: 'c-rank r' }), rateText: h('span'), bar: svg('rect', { height: 8, rx: 2 }), held: h('td', { class: 'c-held r' }), state: h('td', { class: 'c-state' }), mark: h('span') };
      row.el = h('tr', { onclick: () => openNode(m.number) }, h('td', { class: 'c-no' }, h('button', { class: 'who', 'aria-label': `Node ${m.number}, details` }, row.mark, String(m.number))), row.role, row.rank, h('td', { class: 'c-host', title: safe(m.host).textContent }, safe(firstLabel(m.host))), h('td', { class: 'c-rate r' }, h('span', { class: 'rate' }, svg('svg', { width: METER, height: 8, 'aria-hidden': 'true', class: 'meter' }, svg('rect', { width: METER, height: 8, rx: 2, class: 'rail' }), row.bar), row.rateText)), row.held, row.state);
      p.rows.set(m.number, row);
    }
    if (p.tbody.children[at] !== row.el) p.tbody.insertBefore(row.el, p.tbody.children[at] ?? null);
    row.el.className = (m.role === 'generator' && m.state === 'well' ? 'gen ' : '') + (m.state === 'well' ? '' : 'gone');
    const key = [m.role, m.rank, m.word, m.stuck, m.rate == null ? '' : m.rate.toFixed(1), m.held, (most / 8).toFixed(0)].join();
    if (row.shown === key) return;
    row.shown = key;
    keep(row.mark, kindOf(m), () => [icon(kindOf(m), 12)]);
    set(row.role, m.role); set(row.rank, m.rank == null ? '–' : String(m.rank));
    set(row.rateText, m.state === 'well' ? rate(m.rate) : '–');
    row.bar.setAttribute('class', m.role === 'generator' ? 'office' : 'done');
    row.bar.setAttribute('width', (METER * Math.min(1, (m.rate ?? 0) / (m.role === 'generator' ? m.rate || 1 : most))).toFixed(1));
    set(row.held, count(m.held));
    const word = m.stuck ? `${m.stuck} stuck` : m.word;
    keep(row.state, word, () => [h('span', { class: 'state ' + (m.stuck ? 'fault' : { dead: 'fault', frozen: 'waits' }[m.state] ?? '') }, word)]);
  });
}

// ---- events

const times = n => new Intl.NumberFormat('en-US').format(n);
const SENTENCES = {
  joined: e => ['join', ['joined on ', safe(e.host), `, pid ${e.pid}`]],
  left: e => ['left', [`left, ${plural(e.returned, 'message')} returned`]],
  buried: e => ['dead', [`died (${e.why}), ${plural(e.returned, 'message')} returned${e.gaveUp ? `, ${plural(e.gaveUp, 'message')} given up` : ''}`]],
  tookOffice: () => ['takeover', ['became generator']],
  tookOver: e => ['takeover', [`took over from ${e.from} in ${span(e.silenceMs / 1000)}`]],
  resigned: () => ['left', ['resigned as generator']],
  sourceFailed: e => ['warn', [`source failed, ${times(e.inARow)} in a row: `, safe(e.reason)]],
  handlerBroken: e => ['warn', ['handler is broken: ', safe(e.reason)]],
  retried: e => ['person', [e.by ? `retried ${plural(e.count, 'error')}` : `${plural(e.count, 'error')} retried`]],
  dropped: e => ['person', [e.by ? `dropped ${plural(e.count, 'error')}` : `${plural(e.count, 'error')} dropped`]],
  paused: e => ['person', [e.by ? `paused ${e.what}` : `${e.what} paused`, e.forMs == null ? '' : ` for ${span(e.forMs / 1000)}`]],
  resumed: e => ['person', [e.by ? `resumed ${e.what}` : `${e.what} resumed`]],
  limited: e => ['person', [e.inFlight == null && e.rate == null ? 'limits removed' : `limited to ${[e.inFlight == null ? null : `${times(e.inFlight)} in flight`, e.rate == null ? null : `${times(e.rate.messages)} per ${span(e.rate.perMs / 1000)}`].filter(Boolean).join(' and ')}`]],
  rolledBack: e => ['error', [`Redis lost ${times(Math.max(0, e.known - e.found))} of ${times(e.known)} messages that it had acknowledged`]],
  wiped: e => ['error', [`the ring was wiped after ${plural(e.known, 'message')}`]],
  upgraded: e => ['back', [`layout raised from ${e.from} to ${e.to}, ${plural(e.returned, 'message')} returned`]],
  page: e => [e.icon, [e.text]],
};
const ABOUT_RING = ['rolledBack', 'wiped', 'page', 'other'];

// Neighbouring chunks of one change are one line, and readers of errors come and go unseen.
function lines() {
  const out = [], readers = new Set();
  for (const e of ring.events) {
    if (e.kind === 'joined' && e.reader) { readers.add(e.member); continue; }
    if (e.kind === 'left' && readers.has(e.member)) continue;
    const last = out.at(-1);
    if (last && e.count != null && last.kind === e.kind && last.by === e.by && e.timeMs - last.timeMs < 5000) { out[out.length - 1] = { ...e, count: last.count + e.count }; continue; }
    // A pause of a ring with partitions is one event in each.
    if (last && e.what != null && last.kind === e.kind && last.by === e.by && last.what === e.what && e.timeMs - last.timeMs < 1000 && e.id.includes(':')) continue;
    out.push(e);
  }
  return out.slice(-200).reverse();
}
function sentence(e, withNode = true) {
  const [kind, text] = (SENTENCES[e.kind] ?? (x => ['warn', [safe(x.name ?? x.kind ?? 'something happened')]]))(e);
  const node = withNode && e.member != null && !ABOUT_RING.includes(e.kind);
  return [icon(kind), h('span', null, node ? [h('b', null, 'node ' + e.member), ' '] : null, e.by ? [h('b', null, safe(e.by)), ' '] : null, text)];
}

function updateEvents() {
  const p = parts;
  if (!p.events || p.shown !== 'ring') return;
  const list = lines(), key = list.map(e => e.id + (e.count ?? '')).join();
  if (p.eventKey === key && p.events.children.length) return;
  p.eventKey = key;
  p.events.replaceChildren(...list.map(e => h('li', { onpointerenter: () => p.score.move(e.timeMs), onpointerleave: () => p.score.move(null) }, h('time', { datetime: new Date(e.timeMs).toISOString() }, clock(e.timeMs)), sentence(e))));
}

// ---- one node

export function openNode(number) {
  const d = $('drawer');
  d.replaceChildren();
  delete d.dataset.error;
  d.dataset.node = String(number);
  fillNode(d);
  if (d.firstChild) d.showModal();
}

// The node in the drawer, as it is now. A node that is gone keeps its last picture.
function fillNode(d) {
  const m = members().find(x => String(x.number) === d.dataset.node);
  if (!m) return;
  // In a ring with partitions it is text, such as 0:3.
  const number = m.number, key = [number, ring.snap.timeMs, ring.sparks.get(number)?.length].join();
  // Text that a person has selected there stays.
  if (d.firstChild && (d.dataset.shown === key || d.open && !getSelection().isCollapsed)) return;
  d.dataset.shown = key;
  const rows = [['host', safe(m.host)], ['process', String(m.pid)], ['joined', age((seenAt() - m.joined) / 1000) + ' ago'], ['rank', m.role === 'generator' ? 'in office' : m.rank == null ? 'none: it never generates' : m.rank === 0 ? '0, first in line for the office' : String(m.rank)], ['lease', m.lease >= 0 ? 'ends in ' + span(m.lease / 1000) + ' unless it beats' : 'over for ' + span(-m.lease / 1000)], ['published', count(m.generated)], ['settled', count(m.processed)], ['failed', count(m.failed)]];
  const about = lines().filter(e => e.member === number || e.from === number).slice(0, 8), past = ring.sparks.get(number) ?? [];
  const lanes = m.lanes && m.lanes <= 32 ? svg('svg', { width: m.lanes * 12, height: 18, 'aria-hidden': 'true' }, ...Array.from({ length: m.lanes }, (_, i) => svg('rect', { x: i * 12 + 0.5, y: 0.5, width: 9, height: 17, rx: 3, class: i < m.held ? 'busy' : 'idle' }))) : null;
  const focused = d.contains(document.activeElement);
  d.replaceChildren(...[h('header', null, icon(kindOf(m), 18), h('h2', { id: 'drawer-title' }, `Node ${m.number}`), h('span', { class: 'muted' }, `${m.role}, ${m.word}`), h('button', { class: 'ghost square', 'aria-label': 'Close', onclick: () => d.close() }, '✕')),
    h('section', null, h('h3', null, (m.role === 'generator' ? 'Publishes' : 'Settles') + ', since this page looks'), h('p', { class: 'big' }, rate(m.rate), ' ', h('small', null, 'messages/s')), past.length > 2 ? spark(past, 400, 56, m.role === 'generator' ? 'office' : 'done') : null),
    m.handles ? h('section', null, h('h3', null, m.lanes ? `${plural(m.lanes, 'lane')}, ${plural(m.held, 'message')} held` : `${plural(m.held, 'message')} held`), lanes ? h('div', { class: 'lanes-of' }, lanes) : null) : null,
    h('section', null, h('h3', null, 'Facts'), h('dl', { class: 'kv' }, rows.map(([k, v]) => [h('dt', null, k), h('dd', null, v)]))),
    h('section', null, h('h3', null, 'What happened to it'), about.length ? h('ol', { class: 'events-of' }, about.map(e => h('li', null, h('time', null, clock(e.timeMs)), sentence(e, e.member !== number)))) : h('p', { class: 'muted' }, 'Nothing in the events that this page has read: it joined and works.'))].filter(Boolean));
  if (focused) d.querySelector('header button').focus();
}

// ---- empty states

export function emptyPage(title, text, steps, picture, heading = 'h1', reason = null) {
  const baton = icon('generator', 26);
  baton.setAttribute('x', 35); baton.setAttribute('y', -1);
  return h('div', { class: 'empty' }, picture ?? svg('svg', { width: 96, height: 96, viewBox: '0 0 96 96', 'aria-hidden': 'true', class: 'glyph' }, svg('circle', { cx: 48, cy: 48, r: 36, class: 'track', 'stroke-dasharray': '3 6' }), baton), h(heading, null, title), h('p', null, text), reason ? h('p', { class: 'muted' }, reason) : null,
    steps ? h('ol', { class: 'panel steps' }, steps.map(([c, t]) => h('li', null, h('code', null, c), copyable(c), h('span', null, t)))) : null);
}
function nobody() {
  return emptyPage('No node has joined this ring yet', `Redis answers, and the ring “${ring.name}” is empty. This page notices the first node by itself.`, [[`estafeta run --ring ${ring.name}`, 'a node of the demo; the first one generates, the others handle'], [`estafeta run --ring ${ring.name} --handle-lines 'python3 worker.py'`, 'a node with work of yours, in any language'], [`estafeta status --ring ${ring.name}`, 'the same picture in a terminal']]);
}
// A page that has never seen its ring. The other views show the same then.
export function lostPage() {
  const away = ring.lost.why === 'redis';
  return emptyPage(away ? 'Redis away' : 'No server', away ? `${redisName()} does not answer. This page goes on by itself as soon as it does.` : 'The server of this page does not answer. The page goes on by itself as soon as it does.', null, svg('svg', { width: 96, height: 96, viewBox: '0 0 96 96', 'aria-hidden': 'true', class: 'glyph' }, svg('circle', { cx: 48, cy: 48, r: 36, class: 'track', 'stroke-dasharray': '3 6' }), svg('g', { transform: 'translate(48 48)' }, shape('redis', 0, 0, 14))), 'h1', safe(ring.lost.reason ?? ''));
}
export const picture = size => nodes().length ? ringGlyph(nodes(), size) : null;
export const retryIn = () => Math.max(0, Math.ceil((link.next - Date.now()) / 1000));
