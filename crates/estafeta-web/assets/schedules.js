// What the generator follows: its schedule, the checkpoint of its feed, and the brakes of the ring.
import { svg, clock, span } from './charts.js';
import { $, h, set, safe, age, plural } from './dom.js';
import { ring, get, post } from './live.js';
import { emptyPage } from './overview.js';

const state = { entries: null, checkpoint: null, problem: null, at: 0, of: '' };
let key = '';
export const schedules = { show, update };

async function load() {
  state.at = Date.now(); state.of = ring.name;
  try { [state.entries, state.checkpoint] = await Promise.all([get('/schedule', { count: 60 }), get('/checkpoint')]); state.problem = null; } catch (e) { state.problem = e.message; }
  key = ''; update();
}
export const scheduleCount = () => state.of === ring.name ? state.entries?.length ?? 0 : 0;

function show(main) { key = ''; main.replaceChildren(h('p', { class: 'loading' }, 'Reading the schedule …')); load(); }

const until = t => age(Math.max(0, t - ring.now()) / 1000);
const day = t => new Date(t).toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', month: 'short' });
const far = t => new Date(t).toDateString() !== new Date(ring.now()).toDateString();
const when = t => (far(t) ? day(t) + ' ' : '') + clock(t, !far(t));

function update() {
  const main = $('main');
  if (!location.hash.startsWith('#/schedules')) return;
  if (Date.now() - state.at > 10000 || state.of !== ring.name) load();
  if (!state.entries) { if (state.problem) main.replaceChildren(h('p', { class: 'loading' }, state.problem)); return; }
  const s = ring.snap, fresh = JSON.stringify([state.entries, state.checkpoint, pauseKey(s?.producingPause), pauseKey(s?.handlingPause), ring.meta?.mayChange]);
  if (key === fresh) { for (const e of main.querySelectorAll('[data-until]')) set(e, 'in ' + until(Number(e.dataset.until))); return; }
  const focus = main.contains(document.activeElement) ? document.activeElement.dataset.act : null;
  key = fresh;
  const entries = state.entries, paused = !!s?.producingPause;
  main.replaceChildren(h('div', { class: 'page-head' }, h('h1', null, 'Schedules'), h('p', null, entries.length ? `${entries.length} in the program; the generator keeps them, whichever node that is` : 'and brakes')),
    h('div', { class: 'pauses' }, brake('producing', 'The generator publishes, and so may others.', 'The generator keeps its office and its messages. Publishers are refused.', s?.producingPause), brake('handling', 'Nodes claim messages and handle them.', 'Nodes finish what they have begun, and begin no others.', s?.handlingPause)),
    entries.length ? h('div', { class: 'cards' }, entries.map(e => card(e, paused))) : emptyPage('No schedule', 'The last generator of this ring stored none. A schedule belongs to the program, and shows here with its next runs.', [['Schedule::every("poll", Duration::from_secs(30))?', 'in Rust'], [`estafeta run --ring ${ring.name} --generate ./nightly --cron '30 2 * * *' --tz Europe/Berlin`, 'with a command in any language']], null, 'h2'),
    checkpoint());
  if (focus) main.querySelector(`[data-act=${focus}]`)?.focus();
}

// A pause that ends by itself is shown to the second.
const pauseKey = p => p && (p.leftMs == null ? 'on' : Math.ceil(p.leftMs / 1000));

function brake(what, on, off, pause) {
  const verb = pause ? 'resume' : 'pause', name = what[0].toUpperCase() + what.slice(1);
  const change = async () => { try { await post('/' + verb, { what }); } catch (e) { state.problem = e.message; } };
  return h('section', { class: 'panel', 'aria-label': name }, h('h2', null, name, h('span', { class: 'pill' + (pause ? ' off' : '') }, pause ? 'paused' : 'on')), h('p', null, pause ? off + (pause.leftMs == null ? '' : ` It goes on in ${span(Math.ceil(pause.leftMs / 1000))}.`) : on),
    ring.meta?.mayChange ? h('button', { 'data-act': verb + '-' + what, 'aria-label': `${pause ? 'Resume' : 'Pause'} ${what}`, onclick: change }, pause ? 'Resume' : 'Pause') : null);
}

function card(e, paused) {
  const next = e.upcoming.slice(0, 5), rule = e.cron ?? (e.everyMs ? 'every ' + span(e.everyMs / 1000) : null);
  const missed = { skip: 'skipped', last: `newest, up to ${span(e.maxAgeMs / 1000)} old`, all: `all, up to ${span(e.maxAgeMs / 1000)} old` }[e.missed] ?? '–';
  const overlap = { skip: e.open ? 'skipped now: one is open' : 'skipped while one is open', queue: 'queued' }[e.overlap] ?? '–';
  return h('section', { class: 'panel plan' + (paused ? ' paused' : ''), 'aria-label': e.name },
    h('div', null, h('h2', null, safe(e.name), h('span', { class: 'pill' + (paused ? ' off' : '') }, paused ? 'paused' : 'on')), h('p', { class: 'muted' }, rule == null ? ['not understood: ', safe(e.unknown ?? '')] : h('code', null, safe(rule)), e.zone ? [' ', safe(e.zone)] : '')),
    h('div', { class: 'runbox' }, h('h3', null, paused ? 'Would run' : 'Next runs'), next.length ? h('ol', { class: 'runs' }, next.map(t => h('li', null, h('span', { title: t.time }, when(t.timeMs)), h('span', { 'data-until': String(t.timeMs) }, 'in ' + until(t.timeMs))))) : h('p', { class: 'muted' }, 'none known')),
    h('div', { class: 'daybox' }, h('h3', null, 'The next 24 hours'), nextDay(e.upcoming.map(t => t.timeMs), paused)),
    h('div', { class: 'kvbox' }, h('h3', null, 'Rules'), h('dl', { class: 'kv' }, [['last tick', e.lastTick ? when(e.lastTick.timeMs) : 'none'], ['missed', missed], ['overlap', overlap]].map(([k, v]) => [h('dt', null, k), h('dd', null, v)]))),
    h('div', { class: 'act' }));
}

// The coming day as one line: a mark per run, a bar where they are too many to tell apart.
function nextDay(next, paused) {
  const from = ring.now(), length = 864e5, at = t => (100 * (t - from) / length).toFixed(2) + '%', out = [], first = Math.ceil(from / 216e5) * 216e5;
  for (let t = first; t < from + length; t += 216e5) out.push(svg('line', { x1: at(t), x2: at(t), y1: 4, y2: 30, class: 'grid-x' }), svg('text', { x: at(t), y: 44, class: 'mid' }, clock(t, false)));
  const runs = next.filter(t => t < from + length), off = paused ? ' off' : '', many = runs.length === next.length && runs.length >= 60;
  if (!many) out.push(svg('line', { x1: 0, x2: '100%', y1: 17, y2: 17, class: 'lane' }));
  if (many) out.push(svg('rect', { x: 0, y: 11, width: '100%', height: 12, rx: 3, class: 'runs-all' + off }));
  else for (const t of runs) out.push(svg('svg', { x: at(t), y: 17, overflow: 'visible' }, svg('path', { d: 'M0 -8V8', class: 'run' + off })));
  if (!runs.length) out.push(svg('text', { x: 0, y: 8, class: 'none' }, 'none due'));
  return svg('svg', { class: 'day', height: 48, width: '100%', role: 'img', 'aria-label': many ? 'many runs' : plural(runs.length, 'run') }, ...out);
}

function checkpoint() {
  const c = state.checkpoint, value = c?.checkpoint ?? c?.checkpointBase64;
  if (value == null) return '';
  const bytes = c.checkpoint != null ? new TextEncoder().encode(value).length : atob(value).length;
  return h('section', { class: 'panel plan checkpoint', 'aria-label': 'Checkpoint' }, h('div', null, h('h2', null, 'Checkpoint'), h('p', { class: 'rule' }, 'of the feed'), h('p', { class: 'muted' }, 'It moves in the same step as the messages.')), h('div', { class: 'valuebox' }, h('h3', null, `${c.checkpoint == null ? 'Not text, in base64' : 'Value'}, ${plural(bytes, 'byte')}`), h('pre', { class: 'mono' }, safe(value))), h('div', { class: 'kvbox' }, h('h3', null, 'To change it, while nobody is in office'), h('code', null, `estafeta checkpoint set --ring ${ring.name} VALUE`)), h('div', { class: 'act' }));
}
