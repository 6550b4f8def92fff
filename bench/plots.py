"""Plots as SVG, with nothing but the standard library."""
import math
from html import escape

COLOURS = ["#0b6e99", "#d1495b", "#edae49", "#66a182", "#8d5a97", "#5c5c5c", "#2e4057", "#c77dff", "#a44a3f"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 230, 40, 50


def curves(path, title, x_label, y_label, lines):
    """`lines`: {name: [(x, y)]}; both axes by powers of ten."""
    points = [p for line in lines.values() for p in line]
    if not points:
        return
    x_low, x_high = (math.log10(f(p[0] for p in points)) for f in (min, max))
    y_low, y_high = math.floor(math.log10(min(p[1] for p in points))), math.ceil(math.log10(max(p[1] for p in points)))
    x_high, y_high = max(x_high, x_low + 1), max(y_high, y_low + 1)

    def place(x, y):
        return (LEFT + (math.log10(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (math.log10(y) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
           f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>',
           f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>']
    for power in range(math.ceil(x_low), math.floor(x_high) + 1):
        x, y = place(10**power, 10**y_low)
        out += [f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{TOP}" stroke="#ddd"/>',
                f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{10**power:,}</text>']
    for power in range(y_low, y_high + 1):
        x, y = place(10**x_low, 10.0**power)
        out += [f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>',
                f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{10**power:,g}</text>']
    labels = []
    for i, (name, line) in enumerate(lines.items()):
        if not line:
            continue
        colour = COLOURS[i % len(COLOURS)]
        places = [place(*p) for p in line]
        out += [f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>']
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        labels.append([places[-1][1], name, colour])
    labels.sort()
    for below, label in zip(labels, labels[1:]):
        label[0] = max(label[0], below[0] + 14)
    out += [f'<text x="{WIDTH - RIGHT + 10}" y="{y + 4:.1f}" fill="{colour}">{escape(name)}</text>' for y, name, colour in labels]
    path.write_text("\n".join(out + ["</svg>"]) + "\n")


def growth(path, lines):
    curves(path, "Random sizes up to 64 KiB: cost as more is live", "live blocks", "ns an operation", lines)


def threads(path, lines):
    curves(path, "Pairs of 4 KiB, a stream a thread: cost of one operation on the wall's clock", "threads", "ns an operation", lines)


def bars(path, title, unit, groups):
    """`groups`: {group: {name: value}}."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    most = max((v for values in groups.values() for v in values.values()), default=0)
    if not most:
        return
    row, left, width = 14, 300, 420
    height = TOP + sum(len(values) * row + 12 for values in groups.values()) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 220} {height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="10" y="22" font-size="15">{escape(title)}</text>']
    y = TOP
    for group, values in groups.items():
        out.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(group)}</text>')
        for name, value in values.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            out += [f'<rect x="{left}" y="{y + 1}" width="{value / most * width:.1f}" height="{row - 3}" fill="{colour}"/>',
                    f'<text x="{left + value / most * width + 5:.1f}" y="{y + 11}" font-size="10">{escape(name)} {value:.2f}{unit}</text>']
            y += row
        y += 12
    path.write_text("\n".join(out + ["</svg>"]) + "\n")
