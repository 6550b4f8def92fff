"""gdb pretty-printers for weir: `print memory` shows the layers of a stack and their numbers, from top to source.

    (gdb) source tools/gdb/weir.py        or that line in ~/.gdbinit; `print/r memory` shows the members as ever

Reads memory only: it calls no function of the program, and works on a core file. The numbers are those of the moment at
which the program stopped, also where another thread was about to change them. Needs debug information (-g).
"""
import re

import gdb
import gdb.printing

# The library's names that this script reads. Where one of them is renamed, rename it here.
POOL_NUMBERS = "weir::pool_numbers"  # allocated, requested (each .current, .peak), out_of_memory
RESERVED = "reserved_"  # what a pool holds from its upstream (.current, .peak)
STATISTICS = "weir::memory_statistics"  # requested, allocations (each .current, .peak), failures
UPSTREAM = "upstream_"  # the layer below, in every adaptor
REFERRED = "resource_"  # what a handle refers to
OWNED = ("held_", "object_", "held")  # of any_resource: its owner, the pointer in that, and the stack where that points
NO_STACK = "weir::detail::no_stack"  # what is there in one that was moved from
FUNCTIONS = "functions_"  # of any_ref: the table of calls, whose name in the program has the type of what it refers to
ATOMIC = "value_"  # of a number that threads share
LIMIT = {"charges": "used_", "refused": "refused_"}
LABEL = "label_"  # of limits and statistics: what reports call them, as `service: limit`
CHARGES = {"budget": "max_", "charged": "now_", "peak": "peak_"}  # of a limit
ARENAS = "arenas_"  # an array of pointers, null where no thread has that arena
BLOCK_BYTES = "block_bytes_"  # of fixed_size
BINS, BIN_BYTES = "count_", "bytes_"  # of binning: how many, and the largest request of each
PATH = "path_"  # of logging
DEVICE = "device_"  # of sources
SECOND = "second_"  # of fallback: the other stack
# How a class is called, and its layer; the first that matches. The last is of all others.
CLASSES = [(re.compile(pattern), name) for pattern, name in [
    (r"^weir::detail::immediate_source<weir::detail::(\w+)_memory>$", r"\1"),  # device, managed, pinned
    (r"^weir::async_on_host_resource<weir::detail::(\w+)_pool>$", r"async_\1"),
    (r"^weir::detail::cuda_mr_source<.*>::type$", "cuda_mr"),
    (r"^weir::(\w+)_resource(<.*>)?$", r"\1")]]
HANDLES = ("weir::resource_ref<", "weir::basic_any_resource<", "weir::basic_any_ref<", "weir::detail::any_growable")


def type_name(value):
    return str(value.type.strip_typedefs().unqualified())


def fields(value):
    kind = value.type.strip_typedefs()
    return kind.fields() if kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION) else []


def member(value, name):
    """The member of that name, here or in a base class; None where there is none."""
    for field in fields(value):
        if field.name == name and not hasattr(field, "enumval") and hasattr(field, "bitpos"):
            return value[field]
    for field in fields(value):
        if field.is_base_class:
            found = member(value[field], name)
            if found is not None:
                return found
    return None


def inside(value, is_wanted, depth=8):
    """The outermost part of `value` that `is_wanted(field, part)`, not looking into the layers below; None if none is."""
    level = [value]
    for _ in range(depth):
        below = []
        for each in level:
            for field in fields(each):
                if field.name == UPSTREAM or not hasattr(field, "bitpos"):
                    continue
                part = each[field]
                if is_wanted(field, part):
                    return part
                below.append(part)
        level = below
    return None


def plain(value):
    """What a weir::detail::atomic holds, or the value itself."""
    held = member(value, ATOMIC)
    return held if held is not None else value


def number(value):
    return int(plain(value))


def size(count):
    """As weir::format_bytes: `512 B`, `1.50 GiB`."""
    if abs(count) < 1024:
        return f"{count} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        count /= 1024
        if abs(count) < 1023.995 or unit == "EiB":
            return f"{count:.2f} {unit}"


def text(value):
    """A std::string's characters."""
    return value["_M_dataplus"]["_M_p"].string(length=int(value["_M_string_length"]))


def sum_of_pools(pools):
    total = {"reserved": 0, "allocated": 0, "requested": 0, "refused": 0}
    for pool in pools:
        numbers = inside(pool, lambda field, part: type_name(part) == POOL_NUMBERS)
        total["reserved"] += number(inside(pool, lambda field, part: field.name == RESERVED)["current"])
        for level in ("allocated", "requested"):
            total[level] += number(numbers[level]["current"])
        total["refused"] += number(numbers["out_of_memory"])
    return total


def pool_line(total):
    rest = total["reserved"] - total["allocated"]
    return (f"{size(total['reserved'])} reserved = {size(total['allocated'])} allocated "
            f"({size(total['requested'])} requested) + {size(rest)} free, pending or captured; {total['refused']} refused")


def describe_pool(layer):
    return pool_line(sum_of_pools([layer]))


def describe_fixed_size(layer):
    return f"blocks of {size(number(member(layer, BLOCK_BYTES)))}; {describe_pool(layer)}"


def describe_arena(layer):
    array = member(layer, ARENAS)["_M_elems"]
    low, high = array.type.strip_typedefs().range()
    made = [at.dereference() for at in (plain(array[i]) for i in range(low, high + 1)) if int(at) != 0]
    return f"{len(made)} arenas: {pool_line(sum_of_pools(made))}"


def describe_binning(layer):
    count = number(member(layer, BINS))
    largest = number(member(layer, BIN_BYTES)["_M_elems"][count - 1])
    return f"{count} bins for up to {size(largest)}"


def describe_limit(layer):
    refused, charges = number(member(layer, LIMIT["refused"])), member(layer, LIMIT["charges"])
    budget, charged, peak = (number(member(charges, CHARGES[name])) for name in ("budget", "charged", "peak"))
    return f"{size(budget)}, {size(charged)} charged, {size(max(budget - charged, 0))} left; peak {size(peak)}, {refused} refused"


def describe_statistics(layer):
    numbers = inside(layer, lambda field, part: type_name(part) == STATISTICS)
    return (f"{size(number(numbers['requested']['current']))} requested in "
            f"{number(numbers['allocations']['current'])} live allocations; "
            f"peak {size(number(numbers['requested']['peak']))}, {number(numbers['failures'])} failures")


def describe_logging(layer):
    return f'to "{text(member(layer, PATH))}"'


def describe_fallback(layer):
    second = layers(member(layer, SECOND))
    return "then " + " > ".join(f"{name} ({line})" if name == "fallback" else name for name, line in second)


def describe_source(layer):
    device = member(layer, DEVICE)
    return "" if device is None else f"device {number(device)}"


# What a layer's line says, by its name.
LINES = {
    "pool": describe_pool,
    "arena": describe_arena,
    "fixed_size": describe_fixed_size,
    "binning": describe_binning,
    "limit": describe_limit,
    "statistics": describe_statistics,
    "tracking": describe_statistics,
    "logging": describe_logging,
    "fallback": describe_fallback,
    **{name: lambda layer: "" for name in
       ("aligned", "checked", "nvtx", "on_failure", "prefetch", "scrub", "spill", "trace", "wait_for_memory", "host")},
    "async": describe_source,
    "async_managed": describe_source,
    "async_pinned": describe_source,
    "callback": describe_source,
    "cuda_mr": describe_source,
    "device": describe_source,
    "managed": describe_source,
    "pinned": describe_source,
    "system": describe_source,
    "virtual_memory": describe_source,
}


def type_in_symbol(pattern, address):
    """The type in the name of what is at `address`, by the pattern's group; None if it is called otherwise."""
    symbol = re.match(pattern, gdb.execute(f"info symbol {address}", to_string=True))
    if symbol is None:
        return None
    try:
        return gdb.lookup_type(symbol.group(1))
    except gdb.error:
        # clang++ writes `>>` into debug information where the symbol of the type, by which gdb looks, has `> >`.
        return gdb.lookup_type(symbol.group(1).replace("> >", ">>").replace("> >", ">>"))


def most_derived(pointer):
    """What `pointer` points at, as the type that it was made as."""
    kind = pointer.dynamic_type
    if str(kind) == str(pointer.type):
        table = int(pointer.cast(gdb.lookup_type("unsigned long").pointer()).dereference())
        found = type_in_symbol(r"vtable for (.*) \+ \d+", table)
        kind = kind if found is None else found.pointer()
    return pointer.cast(kind).dereference()


def layer_name(layer):
    """`pool` of a weir::pool_resource<...>; the class's own name for somebody else's layer."""
    for pattern, name in CLASSES:
        if match := pattern.match(type_name(layer)):
            return match.expand(name)
    return type_name(layer).split("<")[0]


def label(layer, name):
    """What reports call it: with the name that the program gave it."""
    given = member(layer, LABEL)
    return name if given is None else text(given)


def is_handle(value):
    return type_name(value).startswith(HANDLES)


def referred(value):
    """The stack that a handle leads to; None if it refers to nothing."""
    at = member(value, REFERRED)
    functions = member(value, FUNCTIONS)
    if functions is not None:
        kind = type_in_symbol(r"weir::detail::functions_of<(.*)> in section", int(functions))
        return None if kind is None else at.cast(kind.pointer()).dereference()
    if at is None:
        at = member(member(value, OWNED[0]), OWNED[1])
    if at is None or int(at) == 0:
        return None
    stack = most_derived(at)
    held = member(stack, OWNED[2])
    return stack if held is None and type_name(stack) != NO_STACK else held


def layers(top):
    """(name, line) of each layer, from the top down."""
    while top is not None:
        name = layer_name(top)
        try:
            line = LINES[name](top) if name in LINES else ""
            name = label(top, name)
        except (gdb.error, TypeError, AttributeError, KeyError) as failure:
            line = f"(cannot be read by this version of weir.py: {failure})"
        if is_handle(top):
            top = referred(top)  # a handle has no line of its own
            if top is None:
                yield "no stack", ""
        else:
            yield name, line
            top = member(top, UPSTREAM)


class stack_printer:
    """A stack, or a handle to one: a line of names, then a line for each layer that has numbers."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        found = list(layers(self.value))
        lines = ["weir: " + " > ".join(name for name, _ in found)]
        lines += [f"  {name:<10} {line}" for name, line in found if line]
        return "\n".join(lines)


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("weir")
    collection.add_printer("layer", rf"^weir::({'|'.join(LINES)})_resource(<.*>)?$", stack_printer)
    for pattern, name in CLASSES[:-1]:
        collection.add_printer(name, pattern.pattern, stack_printer)
    collection.add_printer("handle", rf"^({'|'.join(HANDLES)}).*$", stack_printer)
    return collection


gdb.printing.register_pretty_printer(None, printers(), replace=True)
