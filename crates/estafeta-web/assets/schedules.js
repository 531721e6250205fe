// What the generator follows: its schedule, the checkpoint of its feed, and the brakes of the ring.
import { svg, clock, span } from './charts.js';
import { $, h, set, safe, age, plural } from './dom.js';
import { ring, get, post } from './live.js';
import { emptyPage, lostPage, zone } from './overview.js';

const state = { entries: null, checkpoint: null, problem: null, at: 0, of: '' };
let key = '';
export const schedules = { show, update };

async function load() {
  const name = ring.name;
  if (state.of !== name) { state.entries = null; state.checkpoint = null; state.problem = null; }
  state.at = Date.now(); state.of = name;
  try {
    const [entries, checkpoint] = await Promise.all([get('/schedule', { count: 60 }), get('/checkpoint')]);
    if (name === ring.name) Object.assign(state, { entries, checkpoint, problem: null });
  } catch (e) { if (name === ring.name) state.problem = e.message; }
  update();
}
// The number in the navigation is read once per ring, and again from time to time.
export function learnSchedules() { if (state.of !== ring.name || Date.now() - state.at > 60000) load(); }
export const scheduleCount = () => state.of === ring.name ? state.entries?.length ?? 0 : 0;

function show(main) { key = ''; main.replaceChildren(h('p', { class: 'loading' }, 'Reading the schedule …')); load(); }

// Lengths that people set are round, and have round words.
const UNITS = [[86400, 'day'], [3600, 'hour'], [60, 'minute']];
const lengthOf = ms => { const unit = UNITS.find(([n]) => ms >= n * 1000 && ms % (n * 1000) === 0); return unit ? plural(ms / 1000 / unit[0], unit[1]) : ms % 1000 === 0 ? plural(ms / 1000, 'second') : span(ms / 1000); };

// A cron expression in words, if it is a simple one.
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
function inWords(cron) {
  const [minute, hour, day, month, week, more] = cron.trim().split(/\s+/), isNumber = /^\d{1,2}$/;
  if (week == null || more != null || month !== '*') return null;
  const step = Number(/^\*\/(\d{1,2})$/.exec(minute)?.[1] ?? 0);
  if (hour === '*' && day === '*' && week === '*') return minute === '*' ? 'every minute' : step > 1 && 60 % step === 0 ? `every ${step} minutes` : isNumber.test(minute) ? `every hour, at minute ${Number(minute)}` : null;
  if (!isNumber.test(minute) || !isNumber.test(hour)) return null;
  const at = ` at ${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`, name = DAYS.find((d, i) => d.slice(0, 3).toUpperCase() === week.toUpperCase() || isNumber.test(week) && Number(week) % 7 === i);
  if (day === '*') return week === '*' ? 'every day' + at : /^(1-5|mon-fri)$/i.test(week) ? 'Monday to Friday' + at : name ? `every ${name}${at}` : null;
  return week === '*' && isNumber.test(day) ? `day ${Number(day)} of each month${at}` : null;
}

const until = t => age(Math.max(0, t - ring.now()) / 1000);
const day = t => new Date(t).toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', month: 'short' });
const far = t => new Date(t).toDateString() !== new Date(ring.now()).toDateString();
const when = t => (far(t) ? day(t) + ' ' : '') + clock(t, !far(t));

function update() {
  const main = $('main');
  if (!location.hash.startsWith('#/schedules')) return;
  if (Date.now() - state.at > (state.problem ? 2000 : 10000) && !ring.lost || state.of !== ring.name) load();
  if (!state.entries || state.of !== ring.name) { if (ring.lost) main.replaceChildren(lostPage()); else if (state.problem) main.replaceChildren(h('p', { class: 'loading' }, state.problem)); return; }
  const s = ring.snap, fresh = JSON.stringify([state.entries, state.checkpoint, pauseKey(s?.producingPause), pauseKey(s?.handlingPause), ring.meta?.mayChange, state.problem]);
  if (key === fresh) { for (const e of main.querySelectorAll('[data-until]')) set(e, 'in ' + until(Number(e.dataset.until))); return; }
  const focus = main.contains(document.activeElement) ? document.activeElement.dataset.act : null;
  key = fresh;
  const entries = state.entries, paused = !!s?.producingPause;
  main.replaceChildren(h('div', { class: 'page-head' }, h('h1', null, 'Schedules'), h('p', null, entries.length ? `${entries.length === 1 ? '1 entry' : entries.length + ' entries'}, kept by the generator, whichever node that is` : 'what the generator follows, and two brakes')),
    state.problem ? h('p', { class: 'problem', role: 'alert' }, state.problem) : '',
    h('div', { class: 'pauses' }, brake('producing', 'The generator publishes, and so may others.', 'The generator keeps its office and its messages. Publishers are refused.', s?.producingPause), brake('handling', 'Nodes claim messages and handle them.', 'Nodes finish what they have begun, and begin no others.', s?.handlingPause)),
    entries.length ? h('div', { class: 'cards' }, entries.map(e => card(e, paused))) : hasCheckpoint() ? '' : emptyPage('No schedule', 'The last generator of this ring stored none. A schedule belongs to the program, and shows here with its next runs.', [['Schedule::every("poll", Duration::from_secs(30))?', 'in Rust'], [`estafeta run --ring ${ring.name} --generate ./nightly --cron '30 2 * * *' --tz Europe/Berlin`, 'with a command in any language']], null, 'h2'),
    ...checkpoints().map(checkpoint));
  // The button that paused is the one that resumes.
  if (focus) main.querySelector(`[data-act$="${focus.replace(/^[a-z]+/, '')}"]`)?.focus();
}

// A pause that ends by itself is shown to the second.
const pauseKey = p => p && (p.leftMs == null ? 'on' : Math.ceil(p.leftMs / 1000));

function brake(what, on, off, pause) {
  const verb = pause ? 'resume' : 'pause', name = what[0].toUpperCase() + what.slice(1);
  const change = async () => { try { await post('/' + verb, { what }); } catch (e) { state.problem = e.message; update(); } };
  return h('section', { class: 'panel', 'aria-label': name }, h('h2', null, name, h('span', { class: 'pill' + (pause ? ' off' : '') }, pause ? 'paused' : 'on')), h('p', null, pause ? off + (pause.leftMs == null ? '' : ` It goes on in ${span(Math.ceil(pause.leftMs / 1000))}.`) : on),
    ring.meta?.mayChange ? h('button', { 'data-act': verb + '-' + what, 'aria-label': `${pause ? 'Resume' : 'Pause'} ${what}`, onclick: change }, pause ? 'Resume' : 'Pause') : null);
}

function card(e, paused) {
  const name = (e.partition == null ? '' : e.partition + ':') + e.name;
  const next = e.upcoming.slice(0, 5), words = e.cron ? inWords(e.cron) : e.everyMs ? 'every ' + lengthOf(e.everyMs).replace(/^1 /, '') : null;
  const missed = { skip: 'skipped', last: `the last, within ${lengthOf(e.maxAgeMs)}`, all: `all, within ${lengthOf(e.maxAgeMs)}` }[e.missed] ?? '–';
  const overlap = { skip: e.open ? 'skipped now: one is open' : 'skipped while one is open', queue: 'queued' }[e.overlap] ?? '–';
  return h('section', { class: 'panel plan' + (paused ? ' paused' : ''), 'aria-label': name },
    h('div', null, h('h2', null, safe(name), h('span', { class: 'pill' + (paused ? ' off' : '') }, paused ? 'paused' : 'on')), words ? h('p', { class: 'rule' }, words) : null, e.cron ? h('p', { class: 'muted' }, h('code', null, safe(e.cron)), e.zone ? [' ', safe(e.zone)] : '') : words ? null : h('p', { class: 'muted' }, 'not understood: ', safe(e.unknown ?? ''))),
    h('div', { class: 'runbox' }, h('h3', null, (paused ? 'Would run' : 'Next runs') + ', in ' + zone()), next.length ? h('ol', { class: 'runs' }, next.map(t => h('li', null, h('span', { title: t.time }, when(t.timeMs)), h('span', { 'data-until': String(t.timeMs) }, 'in ' + until(t.timeMs))))) : h('p', { class: 'muted' }, 'none known')),
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

const checkpoints = () => state.checkpoint?.partitions ?? [state.checkpoint];
const textOf = c => c?.checkpoint ?? c?.checkpointBase64;
const hasCheckpoint = () => checkpoints().some(c => textOf(c) != null);
function checkpoint(c) {
  const value = textOf(c);
  if (value == null) return '';
  const bytes = c.checkpoint != null ? new TextEncoder().encode(value).length : atob(value).length;
  return h('section', { class: 'panel plan checkpoint', 'aria-label': 'Checkpoint' }, h('div', null, h('h2', null, 'Checkpoint'), h('p', { class: 'rule' }, 'of the feed'), h('p', { class: 'muted' }, 'It moves in the same step as the messages.')), h('div', { class: 'valuebox' }, h('h3', null, `${c.checkpoint == null ? 'Not text, in base64' : 'Value'}, ${plural(bytes, 'byte')}`), h('pre', { class: 'mono' }, safe(value))), h('div', { class: 'kvbox' }, h('h3', null, 'To change it, while no node is in office'), h('code', null, `estafeta checkpoint set --ring ${c.ring} VALUE`)), h('div', { class: 'act' }));
}
