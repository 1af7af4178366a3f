// Charts: uPlot for the history, and a small drawing in SVG for a rule.

/* global uPlot */

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// alone finds the values without a neighbour, which no line would show.
function alone(plot, series) {
  const v = plot.data[series];
  return v.flatMap((n, i) => (n != null && v[i - 1] == null && v[i + 1] == null ? [i] : []));
}

// ceiling is where the scale of columns ends: above the highest value, or at four times the median of the
// highest column, so that an outage does not flatten the rest. Values that are 0 do not count.
export function ceiling(columns) {
  const sorted = columns.map((c) => c.filter((v) => v > 0).sort((a, b) => a - b)).filter((c) => c.length);
  const highest = Math.max(0, ...sorted.map((c) => c.at(-1)));
  const ordinary = Math.max(0, ...sorted.map((c) => 4 * c[Math.floor(c.length / 2)]));
  return highest > ordinary ? ordinary : highest * 1.1 || 1;
}

// cuts draws a triangle at the top where a line goes on beyond the scale.
function cuts(plot, lines, top) {
  const size = 5 * devicePixelRatio;
  lines.forEach((l, i) => plot.data[i + 1].forEach((v, at) => {
    if (!(v > top) || plot.data[i + 1][at - 1] > top) return;
    const x = plot.valToPos(plot.data[0][at], 'x', true);
    plot.ctx.fillStyle = colour(l.colour);
    plot.ctx.beginPath();
    plot.ctx.moveTo(x, plot.bbox.top - 2 * size);
    plot.ctx.lineTo(x - size, plot.bbox.top);
    plot.ctx.lineTo(x + size, plot.bbox.top);
    plot.ctx.fill();
  }));
}

// line draws a mark over the whole height of a plot.
function line(plot, { at, colour: name }) {
  const x = plot.valToPos(at, 'x', true);
  const { left, top, width, height } = plot.bbox;
  if (!(x >= left && x <= left + width)) return;
  plot.ctx.save();
  plot.ctx.strokeStyle = colour(name);
  plot.ctx.lineWidth = devicePixelRatio;
  plot.ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  plot.ctx.beginPath();
  plot.ctx.moveTo(x, top);
  plot.ctx.lineTo(x, top + height);
  plot.ctx.stroke();
  plot.ctx.restore();
}

// chart draws lines over the last 15 minutes into a place. Each line is {label, colour,
// value}: value writes a number of it. It returns {set(times, columns), mark(marks), end()}; a
// mark is a vertical line, {at, colour, text}, at a time; the text is shown while the pointer is near.
export function chart(place, { label, lines, axis }) {
  const size = () => ({ width: Math.max(place.clientWidth, 200), height: 210 });
  let marks = [];
  let top = 1; // of the scale
  const cut = document.createElement('p');
  cut.className = 'cut';
  cut.dataset.testid = 'cut';
  const note = document.createElement('p');
  note.className = 'mark-note';
  note.setAttribute('role', 'status');
  // Without a pointer over the chart the legend has the newest values.
  const newest = (u) => u.cursor.idx ?? u.setLegend({ idx: u.data[0].length - 1 }, false);
  const tell = (u) => {
    newest(u);
    const near = marks.filter((m) => Math.abs(u.valToPos(m.at, 'x') - u.cursor.left) < 8);
    note.textContent = near.map((m) => m.text).join(' ');
  };
  const options = {
    ...size(),
    hooks: { draw: [(u) => marks.forEach((m) => line(u, m)), (u) => cuts(u, lines, top), newest], setCursor: [tell] },
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: { y: { range: () => [0, top] } },
    axes: [
      { stroke: () => colour('--dim'), grid: { show: false }, ticks: { stroke: () => colour('--line') }, space: 70, incrs: [60, 120, 300, 600, 1800, 3600], values: (_, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })) },
      { stroke: () => colour('--dim'), grid: { stroke: () => colour('--line'), width: 1 }, ticks: { show: false }, size: 64, space: 28, values: (_, at) => at.map(axis) },
    ],
    series: [
      { label: 'Time', value: (_, t) => (t ? new Date(t * 1000).toLocaleTimeString('en-GB') : '–') },
      ...lines.map((l) => ({
        label: l.label, width: 1.5, points: { show: true, size: 4, filter: alone }, spanGaps: false, dash: l.dash,
        stroke: () => colour(l.colour), fill: l.fill && (() => colour(l.fill)),
        value: (_, v) => (v === null || v === undefined ? '–' : l.value(v)),
      })),
    ],
  };
  place.setAttribute('role', 'group');
  place.setAttribute('aria-label', label);
  const plot = new uPlot(options, [[], ...lines.map(() => [])], place);
  plot.root.querySelector('.u-wrap').setAttribute('aria-hidden', 'true'); // the legend is text
  place.append(cut, note);
  // The keys go from value to value, as the pointer does.
  place.tabIndex = 0;
  place.onkeydown = (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!by) return;
    e.preventDefault();
    const last = plot.data[0].length - 1;
    const at = Math.min(Math.max((plot.cursor.idx ?? last + 1) + by, 0), last);
    plot.setCursor({ left: plot.valToPos(plot.data[0][at], 'x'), top: 0 });
  };
  place.onblur = () => plot.setCursor({ left: -10, top: -10 });
  const watched = new ResizeObserver(() => plot.setSize(size()));
  watched.observe(place);
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const redraw = () => plot.redraw();
  scheme.addEventListener('change', redraw);
  return {
    set(times, columns) {
      top = ceiling(columns);
      plot.setData([times, ...columns]);
      const [highest, of] = columns.map((c, i) => [Math.max(...c), i]).reduce((a, b) => (b[0] > a[0] ? b : a));
      const at = new Date(times[columns[of].indexOf(highest)] * 1000).toLocaleTimeString('en-GB');
      cut.textContent = highest > top ? `▲ beyond the scale: ${lines[of].label} was ${lines[of].value(highest)} at ${at}.` : '';
    },
    mark(of) {
      marks = of;
      plot.redraw();
    },
    end() {
      watched.disconnect();
      scheme.removeEventListener('change', redraw);
      plot.destroy();
      place.replaceChildren();
    },
  };
}

const svg = (name, attributes) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  return e;
};

// sparkline draws all values as an area, and the denied ones as a darker one in it.
export function sparkline(values, denied, title) {
  const width = 120;
  const height = 24;
  const max = Math.max(ceiling([values]), 1);
  const area = (column, name) => {
    const step = width / Math.max(column.length - 1, 1);
    const points = column.map((v, i) => `${(i * step).toFixed(1)},${(height - (Math.min(v, max) / max) * (height - 2)).toFixed(1)}`);
    return svg('polygon', { points: `0,${height} ${points.join(' ')} ${width},${height}`, class: name });
  };
  const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', class: 'spark', preserveAspectRatio: 'none' });
  root.setAttribute('aria-label', title);
  root.append(area(values, 'all'), area(denied, 'denied'));
  return root;
}
