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
  const entries = colouring === "tag" ? r.groups.map((name, i) => [colourOf(i), name])
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
