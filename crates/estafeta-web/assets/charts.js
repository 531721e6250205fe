// Charts as SVG. All strips of a score share one clock: the same left edge, the same width, one cursor.
// Only elements and attributes are made here: no markup from strings, no inline style.

const NS = 'http://www.w3.org/2000/svg';

export function svg(name, attrs = {}, ...kids) {
  const el = document.createElementNS(NS, name);
  for (const k in attrs) if (attrs[k] != null && attrs[k] !== false) el.setAttribute(k, attrs[k]);
  el.append(...kids);
  return el;
}

// ---- numbers and times in words

const grouped = new Intl.NumberFormat('en-US');
export const count = n => n == null ? '–' : grouped.format(Math.round(n));
export const short = n => n == null ? '–' : n >= 1e6 ? trim(n / 1e6) + 'M' : n >= 1e4 ? Math.round(n / 1e3) + 'k' : n >= 1e3 ? trim(n / 1e3) + 'k' : String(Math.round(n * 10) / 10);
const trim = n => n.toFixed(1).replace(/\.0$/, '');

// A span in seconds: 340 µs, 12 ms, 2.02 s, 1m 12s, 3h 04m, 3d 2h.
export function span(s) {
  if (s == null) return '–';
  if (s === 0) return '0\u00a0s';
  if (s < 0.00095) return Math.round(s * 1e6) + '\u00a0µs';
  if (s < 0.0095) return (s * 1e3).toFixed(1) + '\u00a0ms';
  if (s < 0.9995) return Math.round(s * 1e3) + '\u00a0ms';
  if (s < 9.95) return s.toFixed(2) + '\u00a0s';
  if (s < 59.5) return Math.round(s) + '\u00a0s';
  const r = Math.round(s), two = n => String(n).padStart(2, '0');
  if (r < 3600) return `${Math.floor(r / 60)}m\u00a0${two(r % 60)}s`;
  if (r < 86400) return `${Math.floor(r / 3600)}h\u00a0${two(Math.floor(r % 3600 / 60))}m`;
  return `${Math.floor(r / 86400)}d\u00a0${Math.floor(r % 86400 / 3600)}h`;
}
const pad = n => String(n).padStart(2, '0');
export const clock = (t, seconds = true) => { const d = new Date(t); return `${pad(d.getHours())}:${pad(d.getMinutes())}${seconds ? ':' + pad(d.getSeconds()) : ''}`; };

// ---- scales

function ticks(max, wanted) {
  const rough = max / wanted, p = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 2.5, 5, 10].map(m => m * p).find(m => m >= rough * 0.999);
  const out = [];
  for (let v = 0; v <= max * 1.0001; v += step) out.push(v);
  if (out.at(-1) < max) out.push(out.at(-1) + step);
  return out;
}

function linear(values, top, bottom, wanted, least) {
  const t = ticks(Math.max(least, ...values), wanted), max = t.at(-1);
  return { ticks: t, y: v => bottom - (v / max) * (bottom - top) };
}

const DECADES = [[1e-5, '10 µs'], [1e-4, '100 µs'], [1e-3, '1 ms'], [1e-2, '10 ms'], [0.1, '100 ms'], [1, '1 s'], [10, '10 s'], [60, '1 min'], [3600, '1 h']];
function log(values, top, bottom) {
  let lo = 1e-3, hi = 0.1;
  for (const v of values) { while (v > 0 && v < lo) lo /= 10; if (v > hi) hi = DECADES.find(d => d[0] >= v)?.[0] ?? 3600; }
  const a = Math.log10(lo), b = Math.log10(hi);
  const every = (bottom - top) / (b - a) < 15 ? 2 : 1;
  const all = DECADES.filter(d => d[0] >= lo * 0.99 && d[0] <= hi * 1.01);
  return { ticks: all.filter((d, i) => (all.length - 1 - i) % every === 0).map(d => d[0]).filter((v, i, l) => i === 0 || Math.log10(v / l[i - 1]) * (bottom - top) / (b - a) > 15), label: v => DECADES.find(d => d[0] === v)[1], y: v => bottom - ((Math.log10(Math.max(v, lo)) - a) / (b - a)) * (bottom - top) };
}

// A path that is broken where a sample is missing. `base` closes it to an area.
function path(samples, x, y, get, step, base) {
  let d = '', open = false, first = 0, last = 0, before = 0;
  const close = () => { if (open && base != null) d += `V${base}H${first}Z`; open = false; };
  for (const s of samples) {
    const v = s.gap ? null : get(s);
    if (v == null || (open && s.t - before > step * 2600)) close();
    if (v == null) continue;
    const px = x(s.t).toFixed(1), py = (typeof y === 'function' ? y(v) : y).toFixed(1);
    d += (open ? 'L' : 'M') + px + ' ' + py;
    if (!open) first = px;
    last = px; open = true; before = s.t;
  }
  close();
  return d;
}

// The same between two values: from the lower one forward, from the upper one back.
function band(samples, x, y, low, high, step) {
  let d = '', run = [];
  const flush = () => {
    if (run.length > 1) d += 'M' + run.map(s => `${x(s.t).toFixed(1)} ${y(low(s)).toFixed(1)}`).join('L') + 'L' + run.reverse().map(s => `${x(s.t).toFixed(1)} ${y(high(s)).toFixed(1)}`).join('L') + 'Z';
    run = [];
  };
  for (const s of samples) {
    const ok = !s.gap && low(s) != null;
    if (!ok || (run.length && s.t - run.at(-1).t > step * 2600)) flush();
    if (ok) run.push(s);
  }
  flush();
  return d;
}

// ---- shapes: every state has a form of its own, so that colour is never alone

export function shape(kind, x = 0, y = 0, r = 5) {
  const g = svg('g', { class: 'shape ' + kind, transform: `translate(${x} ${y})` });
  const add = (n, a) => g.append(svg(n, a));
  switch (kind) {
    case 'generator': case 'takeover': add('path', { d: `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z`, class: 'solid' }); break;
    case 'handler': case 'well': add('circle', { r: r * 0.72, class: 'solid' }); break;
    case 'join': case 'back': case 'left': add('circle', { r: r * 0.72, class: 'hollow' }); break;
    case 'dead': add('path', { d: `M${-r * 0.72} ${-r * 0.72}L${r * 0.72} ${r * 0.72}M${-r * 0.72} ${r * 0.72}L${r * 0.72} ${-r * 0.72}`, class: 'stroke' }); break;
    case 'frozen': add('path', { d: `M${-r * 0.45} ${-r * 0.8}V${r * 0.8}M${r * 0.45} ${-r * 0.8}V${r * 0.8}`, class: 'stroke' }); break;
    case 'error': add('rect', { x: -r * 0.66, y: -r * 0.66, width: r * 1.32, height: r * 1.32, class: 'solid' }); break;
    case 'warn': add('path', { d: `M0 ${-r * 0.85}L${r * 0.95} ${r * 0.75}H${-r * 0.95}Z`, class: 'hollow' }); break;
    case 'redis': add('path', { d: `M${-r * 0.9} ${r * 0.7}L${-r * 0.2} ${-r * 0.7}M${r * 0.2} ${r * 0.7}L${r * 0.9} ${-r * 0.7}`, class: 'stroke' }); break;
    case 'person': add('circle', { cy: -r * 0.4, r: r * 0.4, class: 'solid' }); add('path', { d: `M${-r * 0.8} ${r * 0.9}A${r * 0.8} ${r * 0.8} 0 0 1 ${r * 0.8} ${r * 0.9}Z`, class: 'solid' }); break;
  }
  return g;
}

export const icon = (kind, size = 14) => svg('svg', { class: 'icon', width: size, height: size, viewBox: '-7 -7 14 14', 'aria-hidden': 'true' }, shape(kind, 0, 0, 5.5));

// The ring itself, one mark a member. Beyond 36 members one band, its parts by state, the baton on top.
export function ringGlyph(members, size = 58) {
  const c = size / 2, r = c - 6, n = members.length, g = svg('svg', { class: 'glyph', width: size, height: size, viewBox: `0 0 ${size} ${size}`, 'aria-hidden': 'true' });
  g.append(svg('circle', { cx: c, cy: c, r, class: 'track' }), svg('text', { x: c, y: c + 5, class: 'sum' }, String(n)));
  if (n > 36) {
    let from = 0;
    for (const state of ['well', 'frozen', 'dead']) {
      const share = 100 * members.filter(m => m.state === state).length / n;
      if (share) g.append(svg('circle', { cx: c, cy: c, r, pathLength: 100, 'stroke-dasharray': `${Math.max(1, share - 1)} 100`, 'stroke-dashoffset': -from, transform: `rotate(-90 ${c} ${c})`, class: 'shape band-of ' + state }));
      from += share;
    }
  }
  // Many marks are smaller, so that each of them is seen.
  const small = Math.max(1.6, Math.min(4, 3.3 * r / n));
  members.forEach((m, i) => {
    const a = (i / n) * 2 * Math.PI - Math.PI / 2, kind = m.state !== 'well' ? m.state : m.role;
    if (n <= 36 || m.role === 'generator') g.append(shape(kind, c + r * Math.cos(a), c + r * Math.sin(a), m.role === 'generator' ? 6 : small));
  });
  return g;
}

const SWATCH = {
  line: () => svg('path', { d: 'M1 6H15' }),
  area: () => svg('path', { d: 'M1 4H15V10H1Z', class: 'fill' }),
  dash: () => svg('path', { d: 'M1 6H15', class: 'dash' }),
  thin: () => svg('path', { d: 'M1 6H15', class: 'thin' }),
  mid: () => svg('path', { d: 'M1 6H15', class: 'mid' }),
  thick: () => svg('path', { d: 'M1 6H15', class: 'heavy' }),
  bars: () => svg('path', { d: 'M3 10V6M8 10V2M13 10V5', class: 'thick' }),
};
export const swatch = (form, tone) => svg('svg', { class: `swatch ${tone}`, width: 16, height: 12, viewBox: '0 0 16 12', 'aria-hidden': 'true' }, SWATCH[form]());

// Who led, in order; no more than six lanes, whoever led before shares the first one (0).
function leaders(terms) {
  const all = [...new Set(terms.map(t => t.member).reverse())].reverse();
  return all.length > 6 ? [0, ...all.slice(-5)] : all;
}

// ---- the score

export const GUTTER = 52, EDGE = 14;
let serial = 0;

// strips: { id, plot, panes: [{ series, scale, share, least, label }], values } or { id, plot, lanes: true }
export class Score {
  constructor(root, strips, ruler, report) {
    Object.assign(this, { root, strips, ruler, report, at: null, data: null });
    for (const s of [...strips, { plot: ruler }]) {
      s.svg = svg('svg', { class: 'chart', 'aria-hidden': 'true', focusable: 'false' });
      s.hatch = 'hatch' + serial++;
      s.svg.append(svg('defs', {}, svg('pattern', { id: s.hatch, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('rect', { width: 6, height: 6, class: 'hatch-bg' }), svg('rect', { width: 2, height: 6, class: 'hatch-line' }))));
      s.body = svg('g'); s.cursor = svg('g', { class: 'cursor' });
      s.svg.append(s.body, s.cursor);
      s.plot.append(s.svg);
    }
    this.rulerStrip = { plot: ruler, svg: ruler.querySelector('svg'), body: ruler.querySelector('svg > g'), cursor: ruler.querySelector('svg > .cursor') };
    new ResizeObserver(() => this.draw()).observe(root);
    root.addEventListener('pointermove', e => { const p = e.target.closest('.plot'); if (p) this.point(e.clientX - p.getBoundingClientRect().left); else if (e.pointerType === 'mouse') this.move(null); });
    root.addEventListener('pointerdown', e => { const p = e.target.closest('.plot'); if (p) this.point(e.clientX - p.getBoundingClientRect().left); });
    root.addEventListener('pointerleave', e => { if (e.pointerType === 'mouse') this.move(null); });
    ruler.addEventListener('keydown', e => this.key(e));
    ruler.addEventListener('blur', () => this.move(null));
  }
  show(data) { this.data = data; this.draw(); }
  // All sizes are read before anything is written, so that one beat costs one layout.
  measure() {
    for (const s of this.strips) if (s.lanes) s.plot.style.height = Math.max(92, 18 + 28 * leaders(this.data.terms).length) + 'px';
    for (const s of [...this.strips, this.rulerStrip]) { s.w = s.plot.clientWidth; s.h = s.plot.clientHeight; }
    this.width = this.strips[0].w;
  }
  x(t) { const { from, to } = this.data; return GUTTER + ((t - from) / (to - from)) * (this.width - GUTTER - EDGE); }
  point(px) {
    if (!this.data?.samples.length) return;
    const { from, to } = this.data, f = (px - GUTTER) / (this.width - GUTTER - EDGE);
    this.move(f < -0.02 || f > 1.02 ? null : from + Math.min(1, Math.max(0, f)) * (to - from));
  }
  key(e) {
    const { from, to, step } = this.data, big = e.shiftKey ? 10 : 1, t = this.at ?? to;
    const to2 = { ArrowLeft: t - step * big * 1000, ArrowRight: t + step * big * 1000, Home: from, End: to, PageUp: t - step * 30000, PageDown: t + step * 30000 }[e.key];
    if (e.key === 'Escape') this.move(null);
    if (to2 == null) return;
    e.preventDefault();
    this.move(Math.min(to, Math.max(from, to2)));
  }
  // The nearest sample. Inside a gap there is none, and the reason is told instead.
  sampleAt(t) {
    const { samples, gaps, step } = this.data, gap = gaps.find(g => t >= g.from && t <= g.to);
    if (gap) return { t, gap: gap.why };
    let best = null;
    for (const s of samples) if (!best || Math.abs(s.t - t) < Math.abs(best.t - t)) best = s;
    return best && Math.abs(best.t - t) <= step * 1500 + 1000 ? best : { t, gap: 'no sample' };
  }
  move(t) { this.at = t; this.drawCursor(); }

  draw() {
    if (!this.data) return;
    this.measure();
    if (!this.width) return;
    for (const s of this.strips) {
      const { w, h } = s;
      s.svg.setAttribute('viewBox', `0 0 ${w} ${h}`); s.svg.setAttribute('width', w); s.svg.setAttribute('height', h);
      const out = [];
      this.back(s, w, h, out);
      s.lanes ? this.lanes(s, w, h, out) : this.panes(s, w, h, out);
      s.body.replaceChildren(...out);
    }
    this.drawRuler();
    this.drawCursor();
  }
  timeTicks() {
    const { from, to } = this.data, wanted = this.width < 480 ? 4 : 7, span = (to - from) / 1000;
    const step = [30, 60, 120, 300, 600, 900, 3600, 7200, 10800, 14400, 21600].find(s => span / s <= wanted) * 1000;
    const zone = new Date(to).getTimezoneOffset() * 60000, out = [];
    for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) out.push(t);
    return out;
  }
  back(s, w, h, out) {
    for (const t of this.timeTicks()) { const x = Math.round(this.x(t)) + 0.5; out.push(svg('path', { d: `M${x} 0V${h}`, class: 'grid-x' })); }
    for (const g of this.data.gaps) {
      const a = Math.max(GUTTER, this.x(g.from)), b = Math.min(w - EDGE, this.x(g.to));
      if (b - a > 0.5) out.push(svg('rect', { x: a, y: 0, width: b - a, height: h, fill: `url(#${s.hatch})`, class: 'gap' }));
    }
    if (!s.lanes) for (const term of this.data.terms) if (term.silence != null && !term.open) { const x = Math.round(this.x(term.from)) + 0.5; out.push(svg('path', { d: `M${x} 0V${h}`, class: 'handover' })); }
  }
  panes(s, w, h, out) {
    const { step, from } = this.data, samples = this.data.samples.filter(q => q.t >= from), x = t => this.x(t), usable = h - 12;
    let top = 8;
    s.dots = [];
    const small = s.panes.slice(1).reduce((n, p) => n + p.height + 10, 0);
    for (const p of s.panes) {
      const ph = p.height ?? usable - small - 4, bottom = top + ph;
      const values = samples.filter(q => !q.gap).flatMap(q => p.series.map(c => c.get(q)).filter(v => v != null));
      const sc = p.scale === 'log' ? log(values, top, bottom) : linear(values, top, bottom, p.height ? 1 : ph > 70 ? 3 : 2, p.least ?? 1);
      const lower = s.panes.length > 1 && !p.height;
      for (const v of p.height ? [sc.ticks.at(-1)] : sc.ticks) {
        const y = Math.round(sc.y(v)) + 0.5;
        out.push(svg('path', { d: `M${GUTTER} ${y}H${w - EDGE}`, class: v === 0 ? 'base' : 'grid-y' }));
        if (!(lower && v === 0)) out.push(svg('text', { x: GUTTER - 8, y: y + 3.5, class: 'tick end' }, (p.label ?? sc.label ?? short)(v)));
      }
      if (p.height) out.push(svg('path', { d: `M${GUTTER} ${bottom + 0.5}H${w - EDGE}`, class: 'base' }));
      if (p.fan) for (const [a, b, c] of [[1, 0, 'outer'], [2, 1, 'inner']]) out.push(svg('path', { d: band(samples, x, sc.y, p.series[a].get, p.series[b].get, step), class: `band ${c} ${p.series[0].tone}` }));
      for (const c of p.series) {
        if (c.form === 'bars') {
          const bw = Math.max(1, (w - GUTTER - EDGE) / ((this.data.to - this.data.from) / 1000 / step) - 0.6);
          let d = '';
          for (const q of samples) { const v = q.gap ? 0 : c.get(q); if (v > 0 && x(q.t) >= GUTTER) d += `M${x(q.t).toFixed(1)} ${bottom}V${Math.min(bottom - 1.5, sc.y(v)).toFixed(1)}`; }
          out.push(svg('path', { d, class: `bar ${c.tone}`, 'stroke-width': Math.min(bw, 6) }));
        } else {
          if (c.form === 'area') out.push(svg('path', { d: path(samples, x, sc.y, c.get, step, bottom), class: `area ${c.tone}` }));
          out.push(svg('path', { d: path(samples, x, sc.y, c.get, step), class: `line ${c.form} ${c.tone}` }));
        }
        s.dots.push({ c, y: sc.y, bar: c.form === 'bars' });
      }
      top = bottom + 10;
    }
  }
  lanes(s, w, h, out) {
    const { gaps, from, terms, begins } = this.data, top = 8, who = leaders(terms);
    const each = Math.min(30, (h - top - 6) / Math.max(1, who.length)), bar = Math.min(18, each - 5);
    const inside = t => Math.min(w - EDGE, Math.max(GUTTER, this.x(t)));
    who.forEach((n, i) => {
      const y = top + i * each + each / 2;
      out.push(svg('text', { x: GUTTER - 8, y: y + 4, class: 'lane-name end' }, n === 0 ? 'others' : n > 99 ? String(n) : 'node ' + n), svg('path', { d: `M${GUTTER} ${Math.round(y) + 0.5}H${w - EDGE}`, class: 'lane' }));
    });
    // What stands in a lane, so that no two words meet: [lane, from, to].
    const taken = [], lane = i => top + i * each + each / 2, wide = text => text.length * 6.1 + 8;
    const free = (i, a, b) => !taken.some(t => t[0] === i && t[1] < b && t[2] > a);
    const marks = [], laneOf = t => Math.max(0, who.indexOf(t.member));
    for (const term of terms) {
      const i = laneOf(term), y = lane(i), a = inside(term.from), b = inside(term.to), off = term.until ? inside(term.until) : b;
      taken.push([i, a, off]);
      out.push(svg('rect', { x: a, y: y - bar / 2, width: Math.max(2, b - a), height: bar, rx: 3, class: 'term' + (term.now ? ' now' : '') }));
      if (term.until) out.push(svg('rect', { x: b, y: y - bar / 2, width: Math.max(3, off - b), height: bar, class: 'ice' }));
      if (term.end) {
        const text = term.end === 'dead' ? 'died' : 'silent', fits = off + 18 + wide(text) < w - EDGE;
        marks.push([term.end, fits ? off + 9 : Math.min(off + 8, w - EDGE - 2), y, fits ? text : '']);
        taken.push([i, off, off + 18 + wide(fits ? text : '')]);
      }
      if (term.silence != null && !term.open && term.from > from) {
        const prior = terms[terms.indexOf(term) - 1], px = Math.round(a) + 0.5, text = span(term.silence);
        out.push(svg('path', { d: `M${px} ${(prior ? lane(laneOf(prior)) : y) + bar / 2}V${h}`, class: 'handover strong' }));
        marks.push(['takeover', a, y, b - a > 150 ? text + ' of silence' : b - a > 60 ? text : '']);
      }
    }
    if (begins && this.x(begins) - GUTTER > 180) out.push(svg('text', { x: this.x(begins) - 10, y: lane(0) + bar / 2 + 16, class: 'end' }, 'history begins ' + clock(begins)));
    for (const [kind, x, y, text] of marks) out.push(shape(kind, x, y, kind === 'takeover' ? 7 : 5), svg('text', { x: x + (kind === 'takeover' ? 11 : 9), y: y + 4, class: 'mark ' + kind }, text));
    for (const g of gaps) {
      const a = inside(g.from), b = inside(g.to), text = g.why + ' ' + span(Math.round((g.to - g.from) / 1000)).replace('.00', ''), half = wide(text) / 2;
      const x = Math.min(w - EDGE - half, Math.max(GUTTER + half, (a + b) / 2));
      // The first free lane takes the name, and the space below the lanes counts as one. A name that would cover a mark is
      // left out: the cursor shows it.
      const i = [...who, null].findIndex((_, k) => free(k, x - half - 2, x + half + 2) && lane(k) + 9 <= h);
      if (b - a < 3 || (i < 0 && b - a < half * 2)) continue;
      taken.push([Math.max(0, i), x - half, x + half]);
      out.push(svg('rect', { x: x - half, y: lane(Math.max(0, i)) - 8, width: half * 2, height: 16, rx: 3, class: 'tag-bg' }), svg('text', { x, y: lane(Math.max(0, i)) + 4, class: 'tag mid' }, text));
    }
  }
  drawRuler() {
    const s = this.rulerStrip, { w, h } = s, out = [];
    s.svg.setAttribute('viewBox', `0 0 ${w} ${h}`); s.svg.setAttribute('width', w); s.svg.setAttribute('height', h);
    for (const t of this.timeTicks()) { const x = this.x(t); if (x > GUTTER + 4 && x < w - EDGE - 50) out.push(svg('text', { x, y: 16, class: 'tick mid' }, clock(t, false))); }
    out.push(svg('text', { x: w - EDGE, y: 16, class: 'tick end strong' }, 'now'));
    s.body.replaceChildren(...out);
  }
  drawCursor() {
    if (!this.data || !this.width) return;
    // At rest the legend shows the newest second, whatever the range: the last ten minutes' peak is not "now".
    const t = this.at, q = !this.data.samples.length ? null : t == null ? this.data.latest ?? this.sampleAt(this.data.to) : this.sampleAt(t);
    const at = t == null ? null : q.gap ? t : q.t;
    for (const s of this.strips) {
      const out = [];
      if (at != null) {
        const x = this.x(at), px = Math.round(x) + 0.5;
        out.push(svg('path', { d: `M${px} 0V${s.h}` }));
        if (!q.gap) for (const { c, y, bar } of s.dots ?? []) { const v = c.get(q); if (v != null && !bar) out.push(svg('circle', { cx: x, cy: y(v), r: 3, class: c.tone })); }
      }
      s.cursor.replaceChildren(...out);
      for (const c of s.values ?? []) {
        const v = !q || q.gap ? null : c.get(q);
        const text = v == null ? '–' : c.format(v);
        if (c.cell.textContent !== text) c.cell.textContent = text;
      }
    }
    const r = this.rulerStrip, w = r.w;
    if (at == null) r.cursor.replaceChildren();
    else { const x = Math.min(w - 34, Math.max(34, this.x(at))); r.cursor.replaceChildren(svg('rect', { x: x - 30, y: 3, width: 60, height: 18, rx: 4, class: 'chip' }), svg('text', { x, y: 16, class: 'chip-text mid' }, clock(at))); }
    this.report(q, at);
  }
}

// A small line without axes, for a row or a drawer.
export function spark(values, w, h, tone) {
  const max = Math.max(1, ...values.filter(v => v != null)), n = values.length - 1;
  const list = values.map((v, i) => v == null ? { t: i, gap: 1 } : { t: i, v });
  const x = i => 1 + (i / n) * (w - 2), y = v => h - 2 - (v / max) * (h - 4);
  return svg('svg', { class: 'spark', viewBox: `0 0 ${w} ${h}`, width: w, height: h, 'aria-hidden': 'true' },
    svg('path', { d: path(list, x, y, s => s.v, 1, h - 1), class: `area ${tone}` }), svg('path', { d: path(list, x, y, s => s.v, 1), class: `line ${tone}` }));
}

// The same figures as a table, for those who do not see the picture: about ten rows.
export function tableRows(samples, series) {
  const every = Math.max(1, Math.floor(samples.length / 10)), rows = [];
  for (let i = samples.length - 1; i >= 0; i -= every) rows.push([clock(samples[i].t), ...series.map(c => samples[i].gap ? samples[i].gap : c.get(samples[i]) == null ? 'none' : c.format(c.get(samples[i])))]);
  return rows;
}
