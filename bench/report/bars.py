"""Bars beside each other, as an SVG that stands by itself."""
from xml.sax.saxutils import escape

COLOURS = ("#7a3f9d", "#c994c7", "#08519c", "#00a5a8")
WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 170, 70, 18, 14, 48


def text(x, y, words, more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{escape(words)}</text>'


def svg(title, unit, groups, least):
    """`groups`: {group: {name: value}}, a bar each, the names alike in all groups. `least`: {group: value}, a line across
    its bars."""
    names = list(next(iter(groups.values())))
    scale = (WIDTH - LEFT - RIGHT) / max(value for bars in groups.values() for value in bars.values())
    out, y = [text(12, 22, title, 'font-size="14" font-weight="bold"')], TOP
    for group, bars in groups.items():
        begin = y
        for name, colour in zip(names, COLOURS):
            width = bars[name] * scale
            out.append(text(LEFT - 8, y + 13, name, 'text-anchor="end"'))
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" fill="{colour}"/>')
            out.append(text(LEFT + width + 5, y + 13, f"{bars[name]:.2f} {unit}"))
            y += BAR
        out.append(text(12, begin + 13, group, 'font-weight="bold"'))
        at = LEFT + least[group] * scale
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{begin - 3}" y2="{y}" stroke="#b2182b" stroke-width="2"/>')
        y += GAP
    out.append(text(12, y + 8, "Red: what tensors ask for at most, and the context. No device below that can do.", 'fill="#b2182b"'))
    height = y + 22
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(out) + "\n</svg>\n")
