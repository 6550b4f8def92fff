#!/usr/bin/env python3
"""Puts the page's files into a header, include/weir/tools/report_template.hpp, so that users need no build step.

    embed.py            writes the header
    embed.py --check    says whether it is what these files make; exit status 1 if not
"""
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
header = here.parents[1] / "include" / "weir" / "tools" / "report_template.hpp"
LONGEST = 12000  # bytes of one literal: some compilers stop at 16 KiB


def page():
    text = (here / "page.html").read_text()
    text = text.replace("@@STYLE@@\n", (here / "page.css").read_text())
    return text.replace("@@SCRIPT@@\n", "".join((here / name).read_text() for name in ("model.js", "draw.js", "page.js")))


def pieces(text):
    piece = ""
    for line in text.splitlines(keepends=True):
        if len((piece + line).encode()) > LONGEST:
            yield piece
            piece = ""
        piece += line
    yield piece


def made():
    text = page()
    assert text.count("@@DATA@@") == 1 and ')page"' not in text
    literals = "".join(f'    R"page({piece})page",\n' for piece in pieces(text))
    return f"""#pragma once
// The page of a report, without its data. Made by tools/report/embed.py from the files beside it: change those.

#include <weir/version.hpp>

#include <string_view>

// clang-format off
namespace weir::detail {{

inline constexpr std::string_view report_template[] = {{
{literals}}};

}}  // namespace weir::detail
// clang-format on
"""


if sys.argv[1:] == ["--check"]:
    if not header.exists() or header.read_text() != made():
        print(f"{header.name} is not what tools/report makes: run tools/report/embed.py")
        sys.exit(1)
else:
    header.write_text(made())
