"""The figures as plots, by matplotlib."""
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "weir", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                            "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd"})
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: E402

# A colour a name in all plots, alike for what is of one family; weir's own pool stands out.
COLOURS = {
    "weir pool": "#08519c", "weir pool, plain streams": "#4292c6", "weir arena": "#00a5a8", "weir pool | binning": "#8c9be0",
    "RMM pool": "#b2182b", "RMM arena": "#ef6548", "RMM binning over pool": "#fdae8b",
    "CUB CachingDeviceAllocator": "#238b45", "Thrust disjoint pool": "#a1c95a",
    "mimalloc (host memory)": "#666666", "jemalloc (host memory)": "#aaaaaa",
    "floor (4 B a block, 50 instructions a call)": "#000000",
    "PyTorch's rules": "#7a3f9d", "PyTorch's rules, expandable": "#c994c7",
}
MAIN = "weir pool"


def write(figure, path):
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def curves(path, title, x_label, lines):
    """`lines`: {name: [(x, y)]}; both axes are logarithmic."""
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, points in lines.items():
        is_main = name == MAIN
        axes.plot(*zip(*points), marker="o", markersize=4, label=name, color=COLOURS.get(name), zorder=3 if is_main else 2,
                  linewidth=3 if is_main else 1.5)
    axes.set(title=title, xlabel=x_label, ylabel="ns an operation", xscale="log", yscale="log")
    ticks = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    # In the order of the ends of the curves.
    order = sorted(lines, key=lambda name: -lines[name][-1][1])
    handles = dict(zip(lines, axes.get_lines()))
    axes.legend([handles[name] for name in order], order, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    write(figure, path)


def growth(path, lines):
    curves(path, "Random sizes up to 64 KiB: what an operation costs as more is live", "live blocks", lines)


def threads(path, lines):
    curves(path, "Pairs of 4 KiB, a stream a thread: time on the wall, divided by the operations of all threads", "threads", lines)


def waste(path, groups):
    """`groups`: {trace: {stack: reserved / requested}}; a line a trace, a dot a stack."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    if not names:
        return
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.25 * len(groups)))
    rows = {trace: row for row, trace in enumerate(groups)}
    for name in names:
        dots = [(values[name], rows[trace]) for trace, values in groups.items() if name in values]
        axes.scatter(*zip(*dots), label=name, color=COLOURS.get(name), zorder=3 if name == MAIN else 2)
    axes.set(title="Peak reserved / peak requested: how much more than is asked for each holds of the device", xlim=(0.98, None))
    axes.set_yticks(list(rows.values()), list(rows))
    axes.invert_yaxis()
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    write(figure, path)
