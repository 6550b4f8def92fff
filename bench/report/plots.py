"""Plots as SVG, with nothing but the standard library."""
import math
from html import escape

# A colour a name in all plots, alike for what is of one family; weir's own pool stands out.
COLOURS = {
    "weir pool": "#08519c", "weir pool, plain streams": "#4292c6", "weir arena": "#00a5a8", "weir pool | binning": "#8c9be0",
    "RMM pool": "#b2182b", "RMM arena": "#ef6548", "RMM binning over pool": "#fdae8b",
    "CUB CachingDeviceAllocator": "#238b45", "Thrust disjoint pool": "#a1c95a",
    "mimalloc (host memory)": "#666666", "jemalloc (host memory)": "#aaaaaa",
    "PyTorch's rules": "#7a3f9d", "PyTorch's rules, expandable": "#c994c7",
}
OTHERS = ["#8c6d31", "#d6a300", "#5c4033", "#e377c2"]
MAIN = "weir pool"
LINE = 15  # from one label to the next


def colour(name, names):
    unknown = [n for n in names if n not in COLOURS]
    return COLOURS.get(name) or OTHERS[unknown.index(name) % len(OTHERS)]


def opening(width, height, title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>', f'<text x="16" y="24" font-size="15">{escape(title)}</text>']


def write(path, out):
    path.write_text("\n".join(out + ["</svg>"]) + "\n")


def text(x, y, what, anchor="start", fill="#222", size=12, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
            f'font-weight="{weight}">{escape(what)}</text>')


def line(x1, y1, x2, y2, stroke="#ddd", width=1):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"/>'


def steps(low, high):
    """1, 2, 5, 10 ... from at most `low` to at least `high`; (value, whether it gets a label)."""
    all_steps = [m * 10.0**power for power in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    below = max(s for s in all_steps if s <= low)
    above = min((s for s in all_steps if s >= high), default=10.0 ** math.ceil(math.log10(high)))
    wide = math.log10(high / low) > 2.5
    return [(s, not wide or math.log10(s) % 1 == 0) for s in all_steps if below <= s <= above]


def apart(places, low, high):
    """Moves places, which are in order, so that labels there do not touch."""
    moved = []
    for place in places:
        moved.append(max(place, moved[-1] + LINE if moved else low))
    below = high
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], below)
        below = moved[i] - LINE
    return moved


def curves(path, title, x_label, y_label, x_ticks, lines):
    """`lines`: {name: [(x, y)]}; both axes are logarithmic."""
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return
    width, height, left, right, top, bottom = 800, 470, 74, 240, 44, 52
    values = [y for points in lines.values() for _, y in points]
    y_steps = steps(min(values), max(values))
    y_low, y_high = y_steps[0][0], y_steps[-1][0]

    def place(x, y):
        return (left + math.log(x / x_ticks[0]) / math.log(x_ticks[-1] / x_ticks[0]) * (width - left - right),
                height - bottom - math.log(y / y_low) / math.log(y_high / y_low) * (height - top - bottom))

    out = opening(width, height, title)
    out += [text((left + width - right) / 2, height - 12, x_label, "middle"),
            f'<text transform="translate(18 {(height - bottom + top) / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>']
    for tick in x_ticks:
        x, y = place(tick, y_low)
        out += [line(x, y, x, top), text(x, y + 17, f"{tick:,}", "middle")]
    for step, labelled in y_steps:
        x, y = place(x_ticks[0], step)
        out += [line(x, y, width - right, y, "#ddd" if labelled else "#f0f0f0")]
        out += [text(x - 7, y + 4, f"{step:,g}", "end")] if labelled else []
    ends = sorted((place(*points[-1])[1], name) for name, points in lines.items())
    labels = dict(zip((name for _, name in ends), apart([y for y, _ in ends], top, height - bottom)))
    for name in sorted(lines, key=lambda n: n == MAIN):  # what matters most comes last, on top
        places, shade = [place(*p) for p in lines[name]], colour(name, lines)
        out += [line(*places[-1], width - right + 14, labels[name], shade, 0.6),
                f'<polyline fill="none" stroke="{shade}" stroke-width="{3.5 if name == MAIN else 1.8}" points="'
                + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>']
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if name == MAIN else 3}" fill="{shade}"/>' for x, y in places]
        out += [text(width - right + 18, labels[name] + 4, name, fill=shade, weight="bold" if name == MAIN else "normal")]
    write(path, out)


def growth(path, lines):
    curves(path, "Random sizes up to 64 KiB: what an operation costs as more is live", "live blocks", "ns an operation",
           [100, 1000, 10000, 100000, 1000000], lines)


def threads(path, lines):
    curves(path, "Pairs of 4 KiB, a stream a thread: time on the wall, divided by the operations of all threads", "threads",
           "ns an operation", [1, 2, 4, 8], lines)


def waste(path, groups):
    """`groups`: {trace: {stack: reserved / requested}}; a line a trace, a dot a stack."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    if not names:
        return
    row, left, scale, right, top = 22, 350, 480, 30, 84
    width, height = left + scale + right, top + row * len(groups) + 30
    most = max(v for values in groups.values() for v in values.values())
    most = math.ceil(max(most, 1.2) * 5) / 5

    def place(value):
        return left + (value - 1) / (most - 1) * scale

    out = opening(width, height, "Peak reserved / peak requested: how much more than is asked for each holds of the device")
    x = 16
    for name in names:
        shade = colour(name, names)
        out += [f'<circle cx="{x + 5}" cy="46" r="5" fill="{shade}"/>', text(x + 15, 50, name)]
        x += 30 + 7 * len(name)
    for i in range(round((most - 1) * 5) + 1):
        at = place(1 + i / 5)
        out += [line(at, top - 8, at, height - 26), text(at, top - 13, f"{1 + i / 5:.1f}", "middle", "#555", 11)]
    for i, (trace, values) in enumerate(groups.items()):
        y = top + row * i + 8
        out += [text(left - 14, y + 4, trace, "end"), line(left, y, left + scale, y, "#eee")]
        for name in sorted(values, key=lambda n: n == MAIN):
            out += [f'<circle cx="{place(values[name]):.1f}" cy="{y}" r="5" fill="{colour(name, names)}" fill-opacity="0.85" '
                    f'stroke="white" stroke-width="0.8"><title>{escape(name)} {values[name]:.3f}</title></circle>']
    write(path, out)
