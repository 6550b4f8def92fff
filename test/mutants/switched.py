"""Several known bugs in one program, which has the one that it is told to have when it starts.

A bug that lies in the body of a function is put into a copy of that body, and the function begins by choosing one:

    int f() { return 1; }  ->  int f() { if (weir_known_bug == 7) { return 2; } else { return 1; } }

So a test is compiled once for all bugs that it is to catch. Bugs elsewhere, such as in a class's members or in what is
evaluated when the program is compiled, have no such choice.
"""
import re

VARIABLE = "WEIR_KNOWN_BUG"  # of the environment: the number of the bug that the program has
DECLARATION = "extern int weir_known_bug;\n"
DEFINITION = f"""
#include <cstdlib>
int weir_known_bug = 0;
[[gnu::constructor(101)]] static void choose_known_bug() {{
  if (char const* const number = std::getenv("{VARIABLE}")) weir_known_bug = std::atoi(number);
}}
"""

# What has braces of its own, or none that count: comments, texts, characters, and what is for the preprocessor.
SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#[^\n]*',
                     re.DOTALL | re.MULTILINE)
NO_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|concept|constexpr|consteval)\b")
TEMPLATE = re.compile(r"\btemplate\s*<[^>]*>")
INITIALISES = re.compile(r"\)\s*(?:noexcept\s*(?:\([^()]*\))?)?\s*:\s")  # a constructor its members
MEMBER = re.compile(r"\b(?!const\b|noexcept\b|override\b|final\b)\w+\s*$")


def closing(code, opening):
    depth = 0
    for brace in re.compile("[{}]").finditer(code, opening):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    raise ValueError("braces that do not close")


def is_body(head):
    """Whether a brace behind this, which began at the last semicolon or brace, opens the body of a function that is not
    for the compiler."""
    head = TEMPLATE.sub("", head)
    return "(" in head and not NO_FUNCTION.search(head) and not head.rstrip().endswith(("=", ",", "("))


def bodies(text):
    """From where to where the bodies of functions reach, without their braces."""
    code = SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    found, begin, at = [], 0, 0
    while brace := re.compile(r"[;{}]").search(code, at):
        at, head = brace.end(), code[begin:brace.start()]
        if brace[0] == "{" and INITIALISES.search(head) and MEMBER.search(head):
            at = closing(code, brace.start()) + 1
            continue
        if brace[0] == "{" and is_body(head):
            at = closing(code, brace.start()) + 1
            found.append((brace.end(), at - 1))
        begin = at
    return found


def places(text, right):
    at = text.find(right)
    while at >= 0:
        yield at
        at = text.find(right, at + len(right))


def body_at(text, found, right):
    """The bodies that each place of `right` lies in; None if one lies in none."""
    of = [next((b for b in found if b[0] <= at and at + len(right) <= b[1]), None) for at in places(text, right)]
    return None if None in of else set(of)


def can_switch(text, rights):
    found = bodies(text)
    return all(body_at(text, found, right) for right in rights)


def switched(text, edits):
    """The text with all of `edits`, (number, right, wrong), each in effect where `weir_known_bug` is its number."""
    found = bodies(text)
    chosen = {}
    for number, right, wrong in edits:
        for body in body_at(text, found, right):
            of_body = chosen.setdefault(body, {})
            of_body[number] = of_body.get(number, text[slice(*body)]).replace(right, wrong)
    for body in sorted(chosen, reverse=True):
        choices = "".join(f"if (weir_known_bug == {number}) {{{wrong}\n}} else "
                          for number, wrong in chosen[body].items())
        text = f"{text[:body[0]]}{choices}{{{text[slice(*body)]}\n}}{text[body[1]:]}"
    return DECLARATION + text
