#pragma once
// The page of a report, without its data. Made by tools/report/embed.py from the files beside it: change those.

#include <weir/version.hpp>

#include <string_view>

// clang-format off
namespace weir::detail {

inline constexpr std::string_view report_template[] = {
    R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Memory report</title>
<style>
:root {
  --page: #f4f6f8; --card: #ffffff; --ink: #17212e; --quiet: #5b6878; --line: #dde3ea; --grid: #e9edf2;
  --accent: #1b64c8; --on-accent: #ffffff; --bad: #c22f2f; --good: #18794e; --free: #e7ebf0; --free-edge: #c6ced8; --hole: #f4f6f8;
  --reserved: #66758a; --shadow: 0 1px 2px rgb(16 32 56 / 6%), 0 4px 14px rgb(16 32 56 / 5%);
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151c; --card: #19202a; --ink: #e8edf3; --quiet: #9caabb; --line: #2c3644; --grid: #232c38;
    --accent: #78b0ff; --on-accent: #0c1624; --bad: #ff7b72; --good: #57cf95; --free: #27313e; --free-edge: #3c4959; --hole: #141a22;
    --reserved: #8fa0b5; --shadow: none;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body {
  margin: 0 auto; padding: 28px 24px; max-width: 1240px; color: var(--ink); background: var(--page);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
h1, h2, p, dl, dd, ul, ol { margin: 0; padding: 0; }
h1 { font-size: 26px; line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 16px; font-weight: 650; }
header { display: flex; flex-wrap: wrap; gap: 12px; align-items: end; justify-content: space-between; }
main { display: grid; gap: 16px; margin: 20px 0; grid-template-columns: minmax(0, 1fr); }
.kind { color: var(--accent); font-size: 13px; font-weight: 650; }
.quiet { color: var(--quiet); font-size: 13.5px; }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px;
  box-shadow: var(--shadow); min-width: 0;
}
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.figures > div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 12px 16px;
  box-shadow: var(--shadow); }
.figures dt { color: var(--quiet); font-size: 13px; }
.figures dd { font-size: 21px; font-weight: 650; line-height: 1.35; }
.figures .note { display: block; font-size: 12.5px; font-weight: 400; color: var(--quiet); }
.figures .bad dd { color: var(--bad); }
.bar { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; margin-bottom: 10px; }
.bar h2 { flex: 1 1 auto; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 16px; }
canvas { display: block; width: 100%; border-radius: 6px; }
#timeline { height: 300px; cursor: crosshair; touch-action: pan-y; }
#fragmentation { height: 190px; margin-top: 8px; }
#map { margin-top: 8px; }
.moment { margin-top: 8px; min-height: 1.5em; font-size: 14px; overflow-wrap: anywhere; }
.moment b { font-weight: 650; }
.help { margin-top: 6px; font-size: 12.5px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin-top: 8px; list-style: none; font-size: 13px; }
.legend li { max-width: 100%; overflow-wrap: anywhere; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px;
  border: 1px solid rgb(0 0 0 / 12%); }
.choice { display: flex; border: 1px solid var(--line); border-radius: 8px; padding: 2px; margin: 0; min-width: 0; }
.choice input { position: absolute; opacity: 0; width: 1px; height: 1px; }
.choice span { display: block; padding: 3px 10px; border-radius: 6px; font-size: 13px; cursor: pointer; }
.choice input:checked + span { background: var(--accent); color: var(--on-accent); }
.buttons { display: flex; gap: 6px; }
button { font: inherit; font-size: 13px; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 4px 11px; cursor: pointer; }
button:hover { border-color: var(--accent); }
:focus-visible, .choice input:focus-visible + span { outline: 3px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 8px; }
th { text-align: left; color: var(--quiet); font-weight: 500; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
tr:last-child td, tr:last-child th { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; overflow-wrap: normal; }
th.number:last-child, td.number:last-child { padding-right: 0; }
tbody th { color: inherit; min-width: 9em; }
.wide { overflow-x: auto; }
.columns .wide { max-height: 330px; overflow-y: auto; }
.events { list-style: none; margin-top: 8px; max-height: 380px; overflow-y: auto; }
.events button { display: flex; gap: 12px; width: 100%; text-align: left; border: 0; border-radius: 6px; background: none;
  padding: 5px 6px; }
.events button:hover, .events .here { background: var(--grid); }
.events .when { flex: 0 0 7.5em; color: var(--quiet); text-align: right; }
.events .mark { flex: none; width: 9px; height: 9px; border-radius: 50%; margin-top: 6px; }
pre { margin: 2px 0 8px; padding: 10px 12px; overflow-x: auto; background: var(--page); border-radius: 8px;
  font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre; }
.better { color: var(--good); } .worse { color: var(--bad); }
details { margin-top: 6px; font-size: 13.5px; } summary { cursor: pointer; color: var(--quiet); }
.hidden, .skip:not(:focus) { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
@media (max-width: 620px) {
  body { padding: 16px 12px; }
  h1 { font-size: 21px; }
  .card { padding: 13px 12px; }
  .figures { grid-template-columns: 1fr 1fr; gap: 8px; }
  .figures dd { font-size: 18px; }
  #timeline { height: 230px; }
  .events .when { flex-basis: 5.5em; }
  #holders tr > :nth-child(3), #holders tr > :nth-child(5) { display: none; }
  th, td { padding-right: 10px; }
  tbody th { min-width: 6em; }
}
@media (forced-colors: active) { .swatch, .mark { forced-color-adjust: none; } }
</style>
</head>
<body>
<a class="skip" href="#timeline">To the timeline</a>
<header>
  <div>
    <p class="kind">weir memory report</p>
    <h1 id="name"></h1>
    <p id="origin" class="quiet"></p>
  </div>
  <fieldset id="runs" class="choice" hidden><legend class="hidden">Run that is shown</legend></fieldset>
</header>
<noscript><p class="card">This page draws with JavaScript, which is switched off. It asks nothing of the network.</p></noscript>
<main>
  <dl id="figures" class="figures"></dl>

  <section class="card" aria-labelledby="timeline-title">
    <div class="bar">
      <h2 id="timeline-title">Memory over time</h2>
      <fieldset id="axis" class="choice">
        <legend class="hidden">Horizontal axis</legend>
        <label><input type="radio" name="axis" value="time" checked><span>Time</span></label>
        <label><input type="radio" name="axis" value="order"><span>Operations</span></label>
      </fieldset>
      <div class="buttons">
        <button id="to-peak" type="button">Peak</button>
        <button id="zoom-out" type="button" aria-label="Zoom out">&minus;</button>
        <button id="zoom-in" type="button" aria-label="Zoom in">+</button>
        <button id="zoom-all" type="button">All</button>
      </div>
    </div>
    <canvas id="timeline" role="slider" tabindex="0" aria-label="Moment"
      aria-describedby="timeline-help"></canvas>
    <p id="moment" class="moment"></p>
    <pre id="report" role="region" aria-label="Report of the refused request" tabindex="0" hidden></pre>
    <ul id="legend" class="legend" aria-label="Colours of the tags"></ul>
    <p id="timeline-help" class="quiet help">Click or drag to choose a moment. Arrow keys move by one operation, with
      Shift by a hundredth, Page Up and Page Down by a tenth, Home and End to the ends; P goes to the peak, plus and
      minus zoom.</p>
  </section>

  <section class="card" aria-labelledby="map-title">
    <div class="bar">
      <h2 id="map-title">Segments and blocks at this moment</h2>
      <fieldset id="colour" class="choice">
        <legend class="hidden">Colour of blocks</legend>
        <label><input type="radio" name="colour" value="tag" checked><span>Tag</span></label>
        <label><input type="radio" name="colour" value="stream"><span>Stream</span></label>
        <label><input type="radio" name="colour" value="state"><span>State</span></label>
      </fieldset>
    </div>
    <p id="map-summary" class="quiet"></p>
    <canvas id="map" role="img" aria-labelledby="map-title map-summary"></canvas>
    <ul id="map-legend" class="legend" aria-label="Colours of the map"></ul>
    <p id="not-known" class="quiet help"></p>
    <p id="pointed" class="moment" aria-live="polite">Point at a block to see what it is.</p>
    <details>
      <summary>The largest blocks of this moment, as a table</summary>
      <div class="wide"><table id="blocks"></table></div>
    </details>
  </section>

  <div class="columns">
    <section class="card" aria-labelledby="holders-title">
      <h2 id="holders-title">Who holds it</h2>
      <div class="wide"><table id="holders"></table></div>
    </section>
    <section class="card" aria-labelledby="fragmentation-title">
      <h2 id="fragmentation-title">Fragmentation</h2>
      <p id="fragmentation-summary" class="quiet"></p>
      <canvas id="fragmentation" role="img" aria-labelledby="fragmentation-title fragmentation-summary"></canvas>
    </section>
  </div>

  <section id="comparison" class="card" aria-labelledby="comparison-title" hidden>
    <h2 id="comparison-title">The two runs</h2>
    <div class="wide"><table id="compared"></table></div>
  </section>

  <section class="card" aria-labelledby="events-title">
    <h2 id="events-title">What happened</h2>
    <p id="events-summary" class="quiet"></p>
    <ol id="events" class="events"></ol>
  </section>
</main>
<footer class="quiet">All of it is in this file; nothing is loaded and nothing is sent.</footer>
<script id="data" type="application/json">@@DATA@@</script>
<script>
// The recorded runs, and what memory looked like at any moment of one. Nothing here knows the page.
//
// Moment m is the state after the first m events. A block is live from moment `from` until `freed`, and pending from
// then until `done`. A change of the moment looks at one keyframe and at the events since, never at all of them.
"use strict";

const work = {steps: 0};  // events and blocks that were looked at: what the test bounds

/// The last index whose value is at most `wanted`, in a rising array; -1 if there is none.
function lastAtMost(values, wanted) {
  let low = -1, high = values.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle] <= wanted) low = middle; else high = middle - 1;
  }
  return low;
}

class Run {
  constructor(data) {
    Object.assign(this, data);  // name, began, lost, hasEnd, tags, streams, layers, time, segments, happenings, fragmentation
    this.base = BigInt(data.base);
    this.count = data.time.length;
    const blocks = data.blocks;
    this.address = Float64Array.from(blocks.address);
    this.bytes = Float64Array.from(blocks.bytes);
    this.from = Int32Array.from(blocks.from);
    this.freed = Int32Array.from(blocks.freed);
    this.done = Int32Array.from(blocks.done);
    this.tag = Int32Array.from(blocks.tag);
    this.stream = Int32Array.from(blocks.stream);
    this.indexChanges();
    this.addUp();
    this.keepFrames();
    this.groupTags();
  }

  /// Which blocks begin or end at each moment: those of m are `changes[starts[m]]` up to `changes[starts[m + 1]]`.
  indexChanges() {
    const starts = new Int32Array(this.count + 2);
    const each = visit => {
      for (let b = 0; b < this.bytes.length; ++b) {
)page",
    R"page(        if (this.from[b] > 0) visit(this.from[b], b);
        if (this.freed[b] <= this.count) visit(this.freed[b], b);
      }
    };
    each(m => { ++starts[m]; });
    for (let m = 0, sum = 0; m < starts.length; ++m) {
      const here = starts[m];
      starts[m] = sum;
      sum += here;
    }
    const at = starts.slice();
    this.changes = new Int32Array(starts[this.count + 1]);
    each((m, b) => { this.changes[at[m]++] = b; });
    this.starts = starts;
  }

  /// Live, pending and reserved bytes, and live blocks, at every moment.
  addUp() {
    const series = () => new Float64Array(this.count + 2);
    const [live, pending, blocks, reserved] = [series(), series(), series(), series()];
    for (let b = 0; b < this.bytes.length; ++b) {
      live[this.from[b]] += this.bytes[b];
      live[this.freed[b]] -= this.bytes[b];
      pending[this.freed[b]] += this.bytes[b];
      pending[this.done[b]] -= this.bytes[b];
      blocks[this.from[b]] += 1;
      blocks[this.freed[b]] -= 1;
    }
    for (const segment of this.segments) {
      if (!segment.known) continue;
      for (const [, bytes, from, until] of segment.mapped) {
        reserved[from] += bytes;
        reserved[until] -= bytes;
      }
    }
    for (const sums of [live, pending, blocks, reserved])
      for (let m = 1; m < sums.length; ++m) sums[m] += sums[m - 1];
    Object.assign(this, {live, pending, liveBlocks: blocks, reserved});
    this.allocations = this.bytes.reduce((n, _, b) => n + this.wasLive(b), 0);
    this.peak = 0;
    this.reservedPeak = 0;
    this.knowsSegments = this.segments.some(s => s.known);
    for (let m = 1; m <= this.count; ++m) {
      if (live[m] > live[this.peak]) this.peak = m;
      if (reserved[m] > reserved[this.reservedPeak]) this.reservedPeak = m;
    }
  }

  /// Which blocks are there, live or pending, every so many moments; all keyframes together hold some millions at most.
  keepFrames() {
    let most = 0;
    for (let m = 0; m <= this.count; ++m) most = Math.max(most, this.liveBlocks[m]);
    this.spacing = Math.max(512, Math.ceil(this.count * most / 4e6));
    this.frames = [];
    let there = [];
    for (let b = 0; b < this.bytes.length; ++b) if (this.from[b] === 0) there.push(b);
    for (let m = 0; ; m += this.spacing) {
      this.frames.push(Int32Array.from(there));
      if (m + this.spacing > this.count) return;
      there = this.step(there, m, m + this.spacing);
    }
  }
  step(there, from, to) {
    const now = [];
    for (const b of there) if (this.done[b] > to) now.push(b);
    work.steps += there.length + to - from;
    for (let at = this.starts[from + 1]; at < this.starts[to + 1]; ++at) {
      const b = this.changes[at];
      if (this.from[b] > from && this.from[b] <= to && this.done[b] > to) {
        if (this.freed[b] > to || this.lastChange(b, from, to) === at) now.push(b);
      }
    }
    return now;
  }
  /// Of a block that both begins and is freed within these moments, the later of its two places in `changes`.
  lastChange(b, from, to) {
    for (let at = this.starts[this.freed[b] + 1] - 1; ; --at) if (this.changes[at] === b) return at;
  }

  /// The blocks that are live or pending at a moment, by address.
  blocksAt(moment) {
    const frame = Math.floor(moment / this.spacing);
    const there = this.step(this.frames[frame], frame * this.spacing, moment);
    return there.sort((a, b) => this.address[a] - this.address[b]);
  }
  /// Some are only known to be pending at the end.
  wasLive(b) { return this.from[b] < this.freed[b]; }
  isLive(b, moment) { return this.from[b] <= moment && moment < this.freed[b]; }

  /// The tags that hold most at the peak get a colour of their own; the others share one.
  groupTags() {
    const held = new Float64Array(this.tags.length);
    for (const b of this.blocksAt(this.peak)) if (this.isLive(b, this.peak)) held[this.tag[b]] += this.bytes[b];
    const ever = new Float64Array(this.tags.length);
    for (let b = 0; b < this.bytes.length; ++b) if (this.wasLive(b)) ever[this.tag[b]] += this.bytes[b];
    const used = [...held.keys()].filter(tag => ever[tag] > 0);
    used.sort((a, b) => held[b] - held[a] || ever[b] - ever[a] || a - b);
    const own = used.length > 9 ? 8 : used.length;
    this.groups = used.slice(0, own).map(tag => this.shownTag(tag));
    if (used.length > own) this.groups.push(`${used.length - own} other tags`);
    this.groupOf = new Int32Array(this.tags.length);
    used.forEach((tag, rank) => { this.groupOf[tag] = Math.min(rank, own); });
  }

  /// Adds to `sums`, by group, what changes at a moment.
  change(sums, moment) {
    for (let at = this.starts[moment]; at < this.starts[moment + 1]; ++at) {
      const b = this.changes[at];
      const begins = this.from[b] === moment;
      if (begins && this.freed[b] === moment) continue;
      sums[this.groupOf[this.tag[b]]] += begins ? this.bytes[b] : -this.bytes[b];
    }
  }
  /// Live bytes by group.
  sumsAt(moment) {
    const sums = new Float64Array(Math.max(1, this.groups.length));
    for (const b of this.blocksAt(moment)) if (this.isLive(b, moment)) sums[this.groupOf[this.tag[b]]] += this.bytes[b];
    return sums;
  }

  /// Live bytes and blocks by tag, the largest first.
  holdersAt(moment) {
    const held = new Map();
    for (const b of this.blocksAt(moment)) {
      if (!this.isLive(b, moment)) continue;
      const entry = held.get(this.tag[b]) ?? {tag: this.tag[b], bytes: 0, blocks: 0};
      entry.bytes += this.bytes[b];
      entry.blocks += 1;
      held.set(this.tag[b], entry);
    }
    return [...held.values()].sort((a, b) => b.bytes - a.bytes || a.tag - b.tag);
  }

  /// Pieces of address space that are there at a moment, by address: `[segment, address, bytes]`.
  extentsAt(moment) {
    const found = [];
    for (const segment of this.segments)
      for (const [address, bytes, from, until] of segment.mapped)
        if (from <= moment && moment < until) found.push([segment, address, bytes]);
    return found.sort((a, b) => a[1] - b[1]);
  }

  /// Free bytes of the known segments, and the largest piece. Blocks take multiples of 256 bytes.
  freeAt(moment) {
    const blocks = this.blocksAt(moment);
    let [free, largest, reserved, i] = [0, 0, 0, 0];
    let [end, extentEnd, last] = [0, 0, null];  // what was looked at, and the extent that was looked at last
    let piece = 0;  // the free one that ends at `end`
    const add = bytes => {
      free += bytes;
      largest = Math.max(largest, piece += bytes);
    };
    for (const [segment, address, bytes] of this.extentsAt(moment)) {
      if (!segment.known) continue;
      // A block reaches from one extent of a range into the next.
      if (last !== segment || extentEnd !== address) [piece, end] = [0, address];
      [extentEnd, last] = [address + bytes, segment];
      for (; i < blocks.length && this.address[blocks[i]] < extentEnd; ++i) {
        const begin = this.address[blocks[i]];
        if (begin < address) continue;
        if (begin > end) add(begin - end);
        piece = 0;
        end = Math.max(end, begin + Math.ceil(this.bytes[blocks[i]] / 256) * 256);
      }
      if (end < extentEnd) {
        add(extentEnd - end);
        end = extentEnd;
      }
      reserved += bytes;
    }
    return {reserved, free, largest};
  }

  /// Time counts from the first event.
  timeAt(moment) { return moment === 0 ? 0 : this.time[moment - 1] - this.time[0]; }
  momentAtTime(time) { return lastAtMost(this.time, time + this.time[0]) + 1; }
  /// What a map of this run cannot show, in words.
  notKnown() {
    const changes = ["grow", "trim", "map", "unmap"];
    const said = [];
    if (this.lost > 0) said.push(`what ${countText(this.lost)} earlier events did`);
    if (!this.knowsSegments) said.push("which segments there were");
    else if (!this.happenings.some(h => changes.includes(h.action))) said.push("when segments came and went (they are those of the end)");
    else if (!this.hasEnd) said.push("segments that were there before and never went");
    if (this.knowsSegments && this.segments.some(s => !s.known)) said.push("the segments of some blocks");
    said.push(this.hasEnd ? "what was pending before the end" : "what was freed and still pending");
    return said;
  }
  get duration() { return this.timeAt(this.count); }
  tagName(tag) { return this.tags[tag] === "" ? "(no tag)" : this.tags[tag]; }
  shownTag(tag) { return shortText(this.tagName(tag)); }
  streamName(stream) { return this.streams[stream]; }
  hex(address) { return "0x" + (this.base + BigInt(address)).toString(16); }
}

/// Of a text that could fill the page, its beginning, cut off at a character.
function shortText(text) {
  const most = 120;
  return text.length <= most ? text : `${[...text.slice(0, most)].slice(0, -1).join("")}…`;
}
function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let unit = 0;
  while (Math.abs(bytes) >= 1023.995 && unit < 6) { bytes /= 1024; ++unit; }
  return `${bytes.toFixed(2)} ${units[unit]}`;
}
function timeText(ns) {
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(2)} ms`;
  return `${(ns / 1e9).toFixed(3)} s`;
}
const countText = n => n.toLocaleString("en");
const percentText = part => `${(100 * part).toFixed(1)} %`;
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
)page",
    R"page(    return Math.min(Math.max(moment, this.view.from), this.view.to);
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
)page",
    R"page(    c.fillText(`${100 * part} %`, left - 8, y(part));
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
// Puts the model and the drawings together: what the page shows, and what it does when it is clicked or typed at.
"use strict";

const $ = id => document.getElementById(id);
const runs = JSON.parse($("data").textContent).runs.map(data => new Run(data));
const timeless = runs.some(run => run.duration === 0);  // some traces only know the order
const views = runs.map(run => ({from: 0, to: run.count, axis: timeless ? "order" : "time", top: 1}));
let shown = 0;  // which run
let moments = runs.map(run => run.peak);
let colouring = "tag";
let picture = null, scale = null, map = null;

const run = () => runs[shown];
const view = () => views[shown];
const moment = () => moments[shown];

/// When a moment was.
const whenText = (r, m) => timeless ? `event ${countText(m)}` : timeText(r.timeAt(m));

/// An element with text and children. Text is never taken for HTML.
function element(name, {text, className, children = [], ...others} = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  Object.assign(made, others);
  made.append(...children);
  return made;
}
function fill(id, children) { $(id).replaceChildren(...children); }
/// Rows of texts; a column whose heading begins with `#` holds numbers. The first cell of a row is its heading.
function table(id, headings, rows) {
  const cell = (name, text, i) => element(name, {text, className: headings[i].startsWith("#") ? "number" : ""});
  const head = element("tr", {children: headings.map((text, i) => {
    const made = cell("th", text.replace("#", ""), i);
    made.scope = "col";
    return made;
  })});
  const body = rows.map(row => element("tr", {children: row.map((text, i) => {
    if (text instanceof Node) return element("td", {className: "number", children: [text]});
    const made = cell(i === 0 ? "th" : "td", text, i);
    if (i === 0) made.scope = "row";
    return made;
  })}));
  fill(id, [element("thead", {children: [head]}), element("tbody", {children: body})]);
}
function swatch(colour) {
  const made = element("span", {className: "swatch"});
  made.style.background = colour;
  return made;
}
function legend(id, entries) {
  fill(id, entries.map(([colour, text]) => element("li", {children: [swatch(colour), text]})));
}

// ---- what does not change with the moment ---------------------------------------------------------------------------

function showRun() {
  const r = run();
  document.title = `${r.name} – memory report`;
  $("name").textContent = r.name;
  const began = r.began === 0 ? "" : `, began ${new Date(r.began).toISOString().replace("T", " ").slice(0, 19)} UTC`;
  const lost = r.lost === 0 ? "" : `; ${countText(r.lost)} earlier events were lost`;
  $("origin").textContent = `${countText(r.count)} events${timeless ? "" : ` in ${timeText(r.duration)}`}${began}${lost}`;
  showFigures(r);
  const groups = r.groups.map((name, i) => [colourOf(i), name]);
  if (r.knowsSegments) groups.push([themeColour("reserved"), isFarAbove(r) ? `reserved: far above, ${bytesText(r.reserved[r.reservedPeak])}` : "reserved (dashed line)"]);
  if (runs.length > 1) groups.push([themeColour("ink"), `${runs[1 - shown].name} (line)`]);
  legend("legend", groups);
  showEvents(r);
  $("not-known").textContent = r.count === 0 ? "" : `Not known: ${r.notKnown().join("; ")}.`;
  setView(0, r.count);
}

function showFigures(r) {
  const refused = r.happenings.filter(h => h.action === "out_of_memory").length;
  const figures = [["Peak in use", bytesText(r.live[r.peak]), `after ${whenText(r, r.peak)}`]];
  if (r.knowsSegments) {
    const reserved = r.reserved[r.reservedPeak];
    const over = r.live[r.peak] === 0 ? "" : `${(reserved / r.live[r.peak]).toFixed(2)} × the peak in use`;
    figures.push(["Peak reserved", bytesText(reserved), over]);
  }
  figures.push(["In use at the end", bytesText(r.live[r.count]), `${countText(r.liveBlocks[r.count])} blocks`]);
  figures.push(["Blocks at the peak", countText(r.liveBlocks[r.peak]), `${countText(r.allocations)} over time`]);
  figures.push(["Refused requests", countText(refused), refused === 0 ? "never out of memory" : "out of memory"]);
  fill("figures", figures.map(([name, value, note], i) => element("div", {
    className: i === figures.length - 1 && refused > 0 ? "bad" : "",
    children: [element("dt", {text: name}), element("dd", {text: value, children: [element("span", {text: note, className: "note"})]})],
  })));
}

function showEvents(r) {
  const most = 300;
  const refused = r.happenings.filter(h => h.action === "out_of_memory");
  const others = r.happenings.filter(h => h.action !== "out_of_memory");
  const listed = [...refused.slice(0, most), ...others.slice(0, Math.max(0, most - refused.length))]
    .sort((a, b) => a.moment - b.moment);
  const counts = new Map();
  for (const h of r.happenings) counts.set(h.action, (counts.get(h.action) ?? 0) + 1);
  const words = [...counts].map(([action, n]) => `${countText(n)} × ${actionNames[action]}`).join(", ");
  const leftOut = r.happenings.length > listed.length ? `; the first ${countText(listed.length)} are listed` : "";
  $("events-summary").textContent = r.happenings.length === 0
    ? "Nothing but allocations and frees was recorded." : `${words}${leftOut}. Choose one to go there.`;
  fill("events", listed.map(h => {
    const mark = element("span", {className: "mark"});
    mark.style.background = actionColours[h.action];
    const button = element("button", {type: "button", children: [
      element("span", {text: whenText(r, h.moment), className: "when"}), mark, happeningText(r, h)]});
    button.dataset.moment = h.moment;
    button.addEventListener("click", () => choose(h.moment));
    return element("li", {children: h.report ? [button, element("pre", {text: h.report, hidden: true, tabIndex: 0})] : [button]});
  }));
}
function happeningText(r, h) {
  const layer = r.layers[h.layer] ? `, ${r.layers[h.layer]}` : "";
  const tag = r.tags[h.tag] ? `, tag ${r.shownTag(h.tag)}` : "";
  const words = {out_of_memory: "Out of memory: refused", no_segment: "The layer below refused", grow: "Grew by", trim: "Gave back",
    map: "Mapped", unmap: "Unmapped", move: "Moved idle chunks,", spill: "Spilled to the host", unspill: "Brought back from the host"};
  return `${words[h.action]} ${bytesText(h.bytes)}${tag}${layer}`;
}

function showComparison() {
  if (runs.length < 2) return;
  const [a, b] = runs;
  const difference = (x, y, text) => element("span", {
    text: x === y ? "same" : `${y > x ? "+" : "−"}${text(Math.abs(y - x))}${x === 0 ? "" : ` (${percentText(Math.abs(y - x) / x)})`}`,
    className: x === y ? "" : y > x ? "worse" : "better"});
  const row = (name, of, text) => [name, text(of(a)), text(of(b)), difference(of(a), of(b), text)];
  const refused = r => r.happenings.filter(h => h.action === "out_of_memory").length;
  const atPeak = r => new Map(r.holdersAt(r.peak).map(h => [r.tagName(h.tag), h.bytes]));
  const rows = [
    row("Peak in use", r => r.live[r.peak], bytesText), row("Peak reserved", r => r.reserved[r.reservedPeak], bytesText),
    row("In use at the end", r => r.live[r.count], bytesText), row("Allocations", r => r.allocations, countText),
    row("Refused requests", refused, countText),
  ].filter(r => r[0] !== "Peak reserved" || (a.knowsSegments && b.knowsSegments));
  const [inA, inB] = [atPeak(a), atPeak(b)];
  const most = tag => Math.max(inA.get(tag) ?? 0, inB.get(tag) ?? 0);
  const tags = [...new Set([...inA.keys(), ...inB.keys()])].sort((x, y) => most(y) - most(x)).slice(0, 20);
  for (const tag of tags) rows.push(row(`At the peak: ${shortText(tag)}`, r => (r === a ? inA : inB).get(tag) ?? 0, bytesText));
  table("compared", ["", `#${a.name}`, `#${b.name}`, "#Difference"], rows);
  $("comparison").hidden = false;
  $("runs").hidden = false;
  $("runs").append(...runs.map((r, i) => {
    const input = element("input", {type: "radio", name: "run", value: String(i), checked: i === 0});
    input.addEventListener("change", () => { shown = i; showRun(); });
    return element("label", {children: [input, element("span", {text: r.name})]});
  }));
}

// ---- what follows the moment ----------------------------------------------------------------------------------------

/// Where what is in use would be flat below what is reserved, the timeline does not show that.
function isFarAbove(r) { return r.reserved[r.reservedPeak] > 3 * r.live[r.peak]; }
/// The part of the run that the timeline shows.
function setView(from, to) {
  const r = run();
  const most = Math.max(isFarAbove(r) ? 0 : r.reserved[r.reservedPeak], ...runs.map(each => each.live[each.peak]), 1);
  Object.assign(view(), {from, to, top: most * 1.12});
  redraw();
}
function redraw() {
  const canvas = $("timeline");
  scale = drawTimeline(canvas, run(), view(), runs.length > 1 ? runs[1 - shown] : null);
  picture = document.createElement("canvas");
  [picture.width, picture.height] = [canvas.width, canvas.height];
  if (canvas.width > 0 && canvas.height > 0) picture.getContext("2d").drawImage(canvas, 0, 0);
  choose(moment());
}

function choose(wanted) {
  const r = run();
  const m = moments[shown] = Math.min(Math.max(Math.round(wanted), 0), r.count);
  if (m < view().from || m > view().to) {
    const span = view().to - view().from;
    const from = Math.min(Math.max(m - (span >> 1), 0), r.count - span);
    return setView(from, from + span);
  }
  if (picture.width > 0 && picture.height > 0) drawMoment($("timeline"), scale, picture, m);
  showMoment(r, m);
  showMap(r, m);
  showHolders(r, m);
  showFragmentation(r, m);
  showReport(r, m);
  for (const button of $("events").querySelectorAll("button")) {
    const isHere = Number(button.dataset.moment) === m;
    button.classList.toggle("here", isHere);
    if (button.nextSibling) button.nextSibling.hidden = !isHere;
  }
}

/// What the error said, where a request was refused at this moment.
function showReport(r, m) {
  const refused = r.happenings.find(h => h.moment === m && h.report);
  $("report").hidden = !refused;
  $("report").textContent = refused ? refused.report : "";
}

function showMoment(r, m) {
  const parts = [`${bytesText(r.live[m])} in use in ${countText(r.liveBlocks[m])} blocks`];
  if (r.pending[m] > 0) parts.push(`${bytesText(r.pending[m])} pending`);
  if (r.knowsSegments) parts.push(`${bytesText(r.reserved[m])} reserved`);
  const where = `${timeless ? "" : `${whenText(r, m)}, `}event ${countText(m)} of ${countText(r.count)}`;
  const peak = m === r.peak ? "; the peak" : "";
  fill("moment", [element("b", {text: parts.join(", ")}), `  at ${where}${peak}`]);
  const slider = $("timeline");
  slider.setAttribute("aria-valuemin", "0");
  slider.setAttribute("aria-valuemax", String(r.count));
  slider.setAttribute("aria-valuenow", String(m));
  slider.setAttribute("aria-valuetext", `${where}${peak}: ${parts.join(", ")}`);
}

function colourOfBlock(r) {
  if (colouring === "tag") return b => colourOf(r.groupOf[r.tag[b]]);
  if (colouring === "stream") return b => colourOf(Math.min(r.stream[b], 8));
  return () => colourOf(0);
}
function mapLegend(r) {
)page",
    R"page(  const entries = colouring === "tag" ? r.groups.map((name, i) => [colourOf(i), name])
    : colouring === "stream" ? r.streams.slice(0, 8).map((name, i) => [colourOf(i), name === "0x0" ? "default stream" : `stream ${name}`])
    : [[colourOf(0), "live"]];
  if (colouring === "stream" && r.streams.length > 8) entries.push([colourOf(8), `${r.streams.length - 8} other streams`]);
  entries.push([`repeating-linear-gradient(135deg, ${themeColour("reserved")} 0 2px, ${themeColour("free")} 2px 5px)`, "pending"]);
  if (r.knowsSegments) entries.push([themeColour("free"), "free"]);
  if (r.segments.some(s => s.range)) entries.push(["transparent", "··· addresses without memory"]);
  return entries;
}
function showMap(r, m) {
  map = drawMap($("map"), r, m, colourOfBlock(r));
  legend("map-legend", mapLegend(r));
  const extents = r.extentsAt(m);
  const segments = new Set(extents.map(each => each[0]));
  const known = [...segments].filter(s => s.known);
  const bytes = known.length === 0 ? 0 : extents.reduce((sum, each) => sum + (each[0].known ? each[2] : 0), 0);
  const ranges = known.filter(s => s.range).length;
  const counted = (n, one, many) => n === 0 ? [] : [`${countText(n)} ${n === 1 ? one : many}`];
  const kinds = [...counted(known.length - ranges, "segment", "segments"), ...counted(ranges, "growable range", "growable ranges")];
  const words = segments.size === 0 ? "Nothing is held." : known.length === 0
    ? `Segments were not recorded: these are the addresses that blocks had${segments.size === 1 ? "" : `, in ${countText(segments.size)} pieces`}.`
    : `${bytesText(bytes)} in ${kinds.join(" and ")}: ` +
      `${bytesText(r.live[m])} live, ${bytesText(r.pending[m])} pending, ${bytesText(Math.max(0, bytes - r.live[m] - r.pending[m]))} free.`;
  $("map-summary").textContent = words + (map.layout.leftOut > 0 ? ` ${countText(map.layout.leftOut)} small pieces are left out.` : "");
  if ($("blocks").closest("details").open) showBlocks(r, m);
}
function showBlocks(r, m) {
  const blocks = [...map.blocks].sort((x, y) => r.bytes[y] - r.bytes[x]).slice(0, 100);
  table("blocks", ["Address", "#Bytes", "State", "Tag", "Stream", "Since"], blocks.map(b => [
    r.hex(r.address[b]), countText(r.bytes[b]), r.isLive(b, m) ? "live" : "pending", r.shownTag(r.tag[b]),
    r.streamName(r.stream[b]), whenText(r, r.from[b])]));
}
function showPointed(event) {
  const r = run(), m = moment();
  const box = $("map").getBoundingClientRect();
  const found = map && mapPartAt(map.layout, event.clientX - box.left, event.clientY - box.top);
  if (!found) return;
  if (found.part.hole) { $("pointed").textContent = `${bytesText(found.part.hole)} of addresses without memory.`; return; }
  const at = lastAtMost(map.addresses, found.address);
  const b = map.blocks[at];
  if (at >= 0 && found.address < map.addresses[at] + r.bytes[b]) {
    const state = r.isLive(b, m) ? "live" : "pending";
    const until = r.freed[b] > r.count ? "never freed" : `freed after ${whenText(r, r.freed[b])}`;
    fill("pointed", [element("b", {text: `${bytesText(r.bytes[b])} ${state}`}),
      ` at ${r.hex(r.address[b])}, tag ${r.shownTag(r.tag[b])}, stream ${r.streamName(r.stream[b])}, allocated after ` +
      `${whenText(r, r.from[b])}, ${until}.`]);
  } else {
    const layer = found.part.segment.layer ? ` of ${found.part.segment.layer}` : "";
    $("pointed").textContent = `Free memory at ${r.hex(Math.floor(found.address))}${layer}.`;
  }
}

function showHolders(r, m) {
  const now = new Map(r.holdersAt(m).map(h => [h.tag, h]));
  const peak = new Map(r.holdersAt(r.peak).map(h => [h.tag, h]));
  const none = {bytes: 0, blocks: 0};
  const rows = [...new Set([...peak.keys(), ...now.keys()])].slice(0, 30).map(tag => {
    const [p, n] = [peak.get(tag) ?? none, now.get(tag) ?? none];
    return [r.shownTag(tag), bytesText(p.bytes), countText(p.blocks), bytesText(n.bytes), countText(n.blocks)];
  });
  table("holders", ["Tag", "#At the peak", "#Blocks", "#Now", "#Blocks"], rows);
}

function showFragmentation(r, m) {
  const samples = r.fragmentation;
  $("fragmentation").style.display = samples.length === 0 ? "none" : "";
  if (samples.length === 0) {
    $("fragmentation-summary").textContent = "Not known: no segments were recorded.";
    return;
  }
  const {reserved, free, largest} = r.freeAt(m);
  $("fragmentation-summary").textContent = free === 0 ? `Nothing of ${bytesText(reserved)} is free.`
    : `${bytesText(free)} of ${bytesText(reserved)} are free, the largest piece has ${bytesText(largest)}: ` +
      `${percentText(1 - largest / free)} lie outside of it.`;
  drawFragmentation($("fragmentation"), r, m);
}

// ---- mouse and keyboard ---------------------------------------------------------------------------------------------

function zoom(factor) {
  const v = view(), r = run();
  const span = Math.min(r.count, Math.max(10, Math.round((v.to - v.from) * factor)));
  const from = Math.min(Math.max(moment() - (span >> 1), 0), r.count - span);
  setView(from, from + span);
}
const keys = {
  ArrowLeft: shift => choose(moment() - (shift ? Math.ceil(run().count / 100) : 1)),
  ArrowRight: shift => choose(moment() + (shift ? Math.ceil(run().count / 100) : 1)),
  ArrowDown: shift => keys.ArrowLeft(shift),
  ArrowUp: shift => keys.ArrowRight(shift),
  PageDown: () => choose(moment() - Math.ceil(run().count / 10)),
  PageUp: () => choose(moment() + Math.ceil(run().count / 10)),
  Home: () => choose(0),
  End: () => choose(run().count),
  p: () => choose(run().peak),
  "+": () => zoom(0.5),
  "-": () => zoom(2),
};
$("timeline").addEventListener("keydown", event => {
  const action = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
  if (!action) return;
  event.preventDefault();
  action(event.shiftKey);
});
/// A refused request is hit a little beside its mark, too.
function chooseAt(event) {
  const x = event.clientX - $("timeline").getBoundingClientRect().left;
  const near = run().happenings.find(h => h.action === "out_of_memory" && Math.abs(scale.x(h.moment) - x) <= 4);
  choose(near ? near.moment : scale.momentAt(x));
}
$("timeline").addEventListener("pointerdown", event => {
  $("timeline").setPointerCapture(event.pointerId);
  chooseAt(event);
});
$("timeline").addEventListener("pointermove", event => { if (event.buttons !== 0) chooseAt(event); });
$("map").addEventListener("pointermove", showPointed);
$("map").addEventListener("pointerdown", showPointed);
$("to-peak").addEventListener("click", () => choose(run().peak));
$("zoom-in").addEventListener("click", () => zoom(0.5));
$("zoom-out").addEventListener("click", () => zoom(2));
$("zoom-all").addEventListener("click", () => setView(0, run().count));
$("axis").addEventListener("change", event => {
  for (const v of views) v.axis = event.target.value;
  redraw();
});
$("colour").addEventListener("change", event => { colouring = event.target.value; choose(moment()); });
$("blocks").closest("details").addEventListener("toggle", () => showBlocks(run(), moment()));
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showRun);

/// For tests and the console: the numbers of the chosen moment, and how much has been looked at so far.
window.memoryReport = () => {
  const r = run(), m = moment();
  return {moment: m, count: r.count, live: r.live[m], blocks: r.liveBlocks[m], pending: r.pending[m],
          reserved: r.reserved[m], peak: r.live[r.peak], peakMoment: r.peak, reservedPeak: r.reserved[r.reservedPeak],
          drawn: map.blocks.length, steps: work.steps,
          byTag: Object.fromEntries(r.holdersAt(m).map(h => [r.tagName(h.tag), h.bytes]))};
};

$("axis").hidden = timeless;
if (runs.length > 0) {
  showComparison();
  showRun();
}
</script>
</body>
</html>
)page",
};

}  // namespace weir::detail
// clang-format on
