// Draws on canvases what the model knows. Each function gets a canvas and what to draw, and keeps nothing.
"use strict";

const palette = ["#3f7de0", "#e8833a", "#2fa57f", "#c9508f", "#8b6ad6", "#c7a42b", "#36a5c2", "#a8674a", "#8894a6"];
const colourOf = index => palette[index % palette.length];
const actionColours = {out_of_memory: "#d43d3d", no_segment: "#e8833a", grow: "#2fa57f", trim: "#8b6ad6", map: "#36a5c2", unmap: "#c7a42b",
  move: "#3f7de0", spill: "#a8674a", unspill: "#c9508f"};
const actionNames = {out_of_memory: "out of memory", no_segment: "refused below", grow: "grow", trim: "trim", map: "map", unmap: "unmap", move: "move", spill: "spill", unspill: "bring back"};
const themeColour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/// The context of a canvas made as large as it is shown, in CSS pixels.
function contextOf(canvas, height) {
  if (height !== undefined) canvas.style.height = `${height}px`;
  const ratio = window.devicePixelRatio || 1;
  const [width, tall] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(tall * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return {context, width, height: tall};
}

/// A round number of bytes at which about `lines` lines fit below `most`.
function byteStep(most, lines) {
  let step = 1;
  while (most / step > lines) step *= 2;
  return step;
}
function shortBytes(bytes) { return bytesText(bytes).replace(/\.00 /, " ").replace(/(\.\d)0 /, "$1 "); }

/// Where things are on the timeline; the same for what is drawn and for what is pointed at.
class TimelineScale {
  constructor(run, view, width, height) {
    Object.assign(this, {run, view, left: width < 500 ? 58 : 74, right: width - 10, top: 24, bottom: height - 44});
    this.byTime = view.axis === "time" && run.duration > 0;
    this.first = this.byTime ? run.timeAt(view.from) : view.from;
    this.last = Math.max(this.byTime ? run.timeAt(view.to) : view.to, this.first + 1);
  }
  x(moment) {
    const at = this.byTime ? this.run.timeAt(moment) : moment;
    return this.left + (at - this.first) / (this.last - this.first) * (this.right - this.left);
  }
  momentAt(x) {
    const at = this.first + (x - this.left) / (this.right - this.left) * (this.last - this.first);
    const moment = this.byTime ? this.run.momentAtTime(at) : Math.round(at);
    return Math.min(Math.max(moment, this.view.from), this.view.to);
  }
  y(bytes) { return this.bottom - bytes / this.view.top * (this.bottom - this.top); }
}

/// For each column of pixels in which something happened: bytes by group at the moment at which most is live in it and
/// after its last moment, and the most reserved.
function columnsOf(scale) {
  const {run, view} = scale;
  const columns = [];
  const sums = run.sumsAt(view.from);
  let column = null;
  for (let m = view.from; m <= view.to; ++m) {
    const x = Math.floor(scale.x(m));
    if (column !== null && column.x !== x) column.after = sums.slice();
    if (m > view.from) run.change(sums, m);
    if (column === null || column.x !== x) columns.push(column = {x, live: -1, sums: null, after: null, reserved: 0});
    if (run.live[m] > column.live) {
      column.live = run.live[m];
      column.sums = sums.slice();
    }
    column.reserved = Math.max(column.reserved, run.reserved[m]);
  }
  column.after = sums;
  work.steps += view.to - view.from;
  return columns;
}

/// Stacked areas of live bytes by group, the reserved bytes, the peak, what happened, and the other run's line.
function drawTimeline(canvas, run, view, other) {
  const {context: c, width, height} = contextOf(canvas);
  const scale = new TimelineScale(run, view, width, height);
  drawGrid(c, scale);
  const columns = columnsOf(scale);
  drawAreas(c, scale, columns);
  const isVisible = run.knowsSegments && columns.some(each => each.reserved <= view.top);
  if (isVisible) drawSteps(c, scale, columns.map(each => [each.x, each.reserved]), themeColour("reserved"), [5, 3]);
  if (other) drawOther(c, scale, other);
  drawPeak(c, scale);
  drawHappenings(c, scale);
  return scale;
}

function drawGrid(c, scale) {
  const {run, view} = scale;
  c.fillStyle = themeColour("quiet");
  c.strokeStyle = themeColour("grid");
  c.textAlign = "right";
  c.textBaseline = "middle";
  const step = byteStep(view.top, 5);
  for (let bytes = 0; bytes <= view.top; bytes += step) {
    const y = Math.round(scale.y(bytes)) + 0.5;
    line(c, scale.left, y, scale.right, y);
    c.fillText(shortBytes(bytes), scale.left - 8, y);
  }
  c.textBaseline = "top";
  const labels = Math.min(scale.right - scale.left < 420 ? 3 : 6, scale.last - scale.first);  // which are whole numbers
  for (let i = 0; i <= labels; ++i) {
    const at = scale.first + (scale.last - scale.first) * i / labels;
    const x = scale.left + (scale.right - scale.left) * i / labels;
    c.textAlign = i === 0 ? "left" : i === labels ? "right" : "center";
    c.fillText(scale.byTime ? timeText(Math.round(at)) : countText(Math.round(at)), x, scale.bottom + 22);
  }
}
function line(c, x0, y0, x1, y1) {
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
}

function drawAreas(c, scale, columns) {
  const stack = (sums, from, to) => {
    let below = 0;
    for (let group = 0; group < sums.length; ++group) {
      if (sums[group] <= 0) continue;
      const top = scale.y(below + sums[group]);
      c.fillStyle = colourOf(group);
      c.fillRect(from, top, to - from, scale.y(below) - top);
      below += sums[group];
    }
  };
  columns.forEach((column, i) => {
    const next = i + 1 < columns.length ? columns[i + 1].x : scale.right;
    stack(column.sums, column.x, column.x + 1);
    if (next > column.x + 1) stack(column.after, column.x + 1, next);
  });
}
function drawSteps(c, scale, points, colour, dashes) {
  c.save();
  c.beginPath();
  c.rect(0, scale.top - 2, scale.right, scale.bottom - scale.top + 4);
  c.clip();
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.setLineDash(dashes);
  c.beginPath();
  points.forEach(([x, bytes], i) => {
    const y = scale.y(bytes);
    if (i === 0) c.moveTo(x, y);
    c.lineTo(x, i === 0 ? y : scale.y(points[i - 1][1]));
    c.lineTo(x, y);
  });
  if (points.length > 0) c.lineTo(scale.right, scale.y(points[points.length - 1][1]));
  c.stroke();
  c.restore();
}

/// The other run's live bytes, laid over this one's width.
function drawOther(c, scale, other) {
  const whole = {from: 0, to: other.count, top: scale.view.top, axis: scale.view.axis};
  const own = new TimelineScale(other, whole, scale.right + 10, scale.bottom + 44);
  own.left = scale.left;
  const most = new Map();
  for (let m = 0; m <= other.count; ++m) {
    const x = Math.floor(own.x(m));
    most.set(x, Math.max(most.get(x) ?? 0, other.live[m]));
  }
  work.steps += other.count;
  drawSteps(c, scale, [...most], themeColour("ink"), []);
}

function drawPeak(c, scale) {
  const {run, view} = scale;
  if (run.peak < view.from || run.peak > view.to || run.live[run.peak] === 0) return;
  const [x, y] = [scale.x(run.peak), scale.y(run.live[run.peak])];
  const text = `peak ${bytesText(run.live[run.peak])}`;
  const atLeft = x + c.measureText(text).width + 14 > scale.right;
  c.fillStyle = themeColour("ink");
  c.beginPath();
  c.arc(x, y, 4, 0, 7);
  c.fill();
  c.textBaseline = "bottom";
  c.textAlign = atLeft ? "right" : "left";
  c.font = c.font.replace("12px", "600 12px");
  c.fillText(text, x + (atLeft ? -8 : 8), y - 4);
  c.font = c.font.replace("600 ", "");
}

/// On a strip below the areas; refused requests also as a line through them.
function drawHappenings(c, scale) {
  const {run, view} = scale;
  const drawn = new Set();
  const each = (wanted, draw) => {
    for (const h of run.happenings) {
      if (h.moment < view.from || h.moment > view.to || (h.action === "out_of_memory") !== wanted) continue;
      const x = Math.round(scale.x(h.moment));
      const key = `${h.action} ${x}`;
      if (drawn.has(key)) continue;
      drawn.add(key);
      c.fillStyle = c.strokeStyle = actionColours[h.action];
      draw(x);
    }
  };
  each(false, x => c.fillRect(x - 1, scale.bottom + 6, 2.5, 9));
  each(true, x => {
    c.save();
    c.setLineDash([2, 3]);
    line(c, x + 0.5, scale.top - 6, x + 0.5, scale.bottom);
    c.restore();
    c.beginPath();
    c.moveTo(x, scale.top - 6);
    c.lineTo(x - 6, scale.top - 17);
    c.lineTo(x + 6, scale.top - 17);
    c.fill();
    c.fillRect(x - 1, scale.bottom + 4, 3, 13);
  });
  work.steps += run.happenings.length;
}

/// The chosen moment, over the finished picture.
function drawMoment(canvas, scale, picture, moment) {
  const ratio = window.devicePixelRatio || 1;
  const c = canvas.getContext("2d");
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.clearRect(0, 0, canvas.width, canvas.height);
  c.drawImage(picture, 0, 0);
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (moment < scale.view.from || moment > scale.view.to) return;
  const x = Math.round(scale.x(moment)) + 0.5;
  c.strokeStyle = c.fillStyle = themeColour("accent");
  c.lineWidth = 2;
  line(c, x, scale.top - 8, x, scale.bottom + 4);
  c.beginPath();
  c.arc(x, scale.bottom + 4, 5.5, 0, 7);
  c.fill();
}

/// Lays the pieces of address space out in rows, as words are in lines. A hole in a range is a short gap.
function layMap(run, moment, width) {
  const [rowHeight, rowGap, gap, most] = [24, 9, 7, 80];
  const extents = run.extentsAt(moment);
  const total = extents.reduce((sum, each) => sum + each[2], 0);
  const rows = width < 500 ? 14 : 9;
  const scale = Math.max(total / (rows * width), 1e-9);  // bytes in a pixel
  const parts = [];
  let [x, row] = [0, 0];
  extents.forEach(([segment, address, bytes], i) => {
    const last = extents[i - 1];
    const inRange = last && last[0] === segment;
    const touches = inRange && last[1] + last[2] === address;
    if (i > 0 && !touches) x += inRange ? 14 : gap;
    if (inRange && !touches && x < width) parts.push({hole: address - last[1] - last[2], x: x - 13, width: 12, row});
    for (let laid = 0; laid < bytes;) {  // no address: a large one plus little is the same number
      if (x > width - 4) { x = 0; ++row; }
      const pixels = Math.min(Math.max((bytes - laid) / scale, 3), width - x);
      const here = Math.min(bytes - laid, Math.max(pixels * scale, 1));
      parts.push({segment, address: address + laid, bytes: here, x, width: pixels, row});
      laid += here;
      x += pixels;
    }
  });
  const shown = parts.filter(part => part.row < most);
  const height = (Math.min(row, most - 1) + 1) * (rowHeight + rowGap);
  return {parts: shown, leftOut: parts.length - shown.length, rowHeight, rowGap, height};
}

/// All segments with their blocks, by address. `colour(b)` is that of a live block.
function drawMap(canvas, run, moment, colour) {
  const layout = layMap(run, moment, canvas.clientWidth);
  const {context: c} = contextOf(canvas, Math.max(layout.height, 24));
  const blocks = run.blocksAt(moment);
  const addresses = Float64Array.from(blocks, b => run.address[b]);
  const stripes = stripesOf(c);
  for (const part of layout.parts) {
    const y = part.row * (layout.rowHeight + layout.rowGap);
    if (part.hole) { drawHole(c, part, y, layout.rowHeight); continue; }
    c.fillStyle = themeColour(part.segment.known ? "free" : "hole");
    c.fillRect(part.x, y, part.width, layout.rowHeight);
    drawBlocks(c, run, moment, part, y, layout.rowHeight, blocks, addresses, colour, stripes);
    c.strokeStyle = themeColour("free-edge");
    c.lineWidth = 1;
    c.strokeRect(part.x + 0.5, y + 0.5, Math.max(part.width - 1, 1), layout.rowHeight - 1);
  }
  work.steps += blocks.length + layout.parts.length;
  return {layout, blocks, addresses};
}
function drawBlocks(c, run, moment, part, y, height, blocks, addresses, colour, stripes) {
  const end = part.address + part.bytes;
  const pixel = part.width / part.bytes;
  for (let i = Math.max(0, lastAtMost(addresses, part.address)); i < blocks.length && addresses[i] < end; ++i) {
    const b = blocks[i];
    const [first, last] = [Math.max(addresses[i], part.address), Math.min(addresses[i] + run.bytes[b], end)];
    if (last <= first) continue;
    const x = part.x + (first - part.address) * pixel;
    const width = Math.max((last - first) * pixel, 1);
    const live = run.isLive(b, moment);
    c.fillStyle = live ? colour(b) : stripes;
    c.fillRect(x, y, width > 4 ? width - 1 : width, height);
    const name = run.shownTag(run.tag[b]);
    if (live && width > 60 && c.measureText(name).width < width - 14) {
      c.fillStyle = "#ffffff";
      c.textBaseline = "middle";
      c.textAlign = "left";
      c.fillText(name, x + 7, y + height / 2 + 0.5);
    }
  }
}
function stripesOf(c) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const t = tile.getContext("2d");
  t.fillStyle = themeColour("free");
  t.fillRect(0, 0, 8, 8);
  t.strokeStyle = themeColour("reserved");
  t.lineWidth = 2;
  for (const offset of [-8, 0, 8]) line(t, offset, 8, offset + 8, 0);
  return c.createPattern(tile, "repeat");
}
function drawHole(c, part, y, height) {
  c.fillStyle = themeColour("reserved");
  for (let i = 0; i < 3; ++i) c.fillRect(part.x + 1 + 4 * i, y + height / 2 - 1, 2, 2);
}

/// What is at a place of the map: a part and, in it, an address; null beside all parts.
function mapPartAt(layout, x, y) {
  const row = Math.floor(y / (layout.rowHeight + layout.rowGap));
  for (const part of layout.parts) {
    if (part.row !== row || x < part.x || x >= part.x + part.width) continue;
    return {part, address: part.hole ? 0 : part.address + (x - part.x) / part.width * part.bytes};
  }
  return null;
}

/// The share of free memory outside its largest piece, and the chosen moment.
function drawFragmentation(canvas, run, moment) {
  const {context: c, width, height} = contextOf(canvas);
  const [left, right, top, bottom] = [46, width - 8, 10, height - 22];
  const x = m => left + m / Math.max(run.count, 1) * (right - left);
  const y = part => bottom - part * (bottom - top);
  c.strokeStyle = themeColour("grid");
  c.fillStyle = themeColour("quiet");
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) {
    line(c, left, Math.round(y(part)) + 0.5, right, Math.round(y(part)) + 0.5);
    c.fillText(`${100 * part} %`, left - 8, y(part));
  }
  c.textBaseline = "top";
  c.textAlign = "left";
  c.fillText("0", left, bottom + 6);
  c.textAlign = "right";
  c.fillText(`${countText(run.count)} operations`, right, bottom + 6);
  const points = run.fragmentation.map(([m, , free, largest]) => [x(m), y(free === 0 ? 0 : 1 - largest / free)]);
  c.beginPath();
  points.forEach(([px, py], i) => { if (i === 0) c.moveTo(px, py); else c.lineTo(px, py); });
  c.strokeStyle = colourOf(1);
  c.lineWidth = 2;
  c.stroke();
  if (points.length > 0) {
    c.lineTo(points[points.length - 1][0], bottom);
    c.lineTo(points[0][0], bottom);
    c.globalAlpha = 0.16;
    c.fillStyle = colourOf(1);
    c.fill();
    c.globalAlpha = 1;
  }
  c.strokeStyle = themeColour("accent");
  line(c, x(moment), top, x(moment), bottom);
}
