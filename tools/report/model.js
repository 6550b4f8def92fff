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
        if (this.from[b] > 0) visit(this.from[b], b);
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
