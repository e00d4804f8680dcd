#!/usr/bin/env python3
"""docs/reliability.md promises only what a test shows: every test and file that it names is there, and its table of
limits says what the code's constants are."""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
PAGE = (ROOT / "docs/reliability.md").read_text()


def tests():
    """Names of all GoogleTest cases, "Suite.Name"."""
    found = set()
    for source in (ROOT / "tests").rglob("*_test.cc"):
        for suite, name in re.findall(r"(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)", source.read_text()):
            found.add(f"{suite}.{name}")
    return found


def value_of(constant, file):
    """Returns the value of a C++ constant; None: not found."""
    match = re.search(rf"\b{constant}\s*=\s*([^;]+);", (ROOT / file).read_text())
    if not match:
        return None
    text = re.sub(r"std::\w+\{(\d+)\}", r"\1", match[1]).replace("'", "")
    text = re.sub(r"(\d)[uUlL]+\b", r"\1", text)
    return eval(text, {"__builtins__": {}}) if re.fullmatch(r"[\d.e<>()+*\- ]+", text) else None


def problems():
    promises = PAGE[PAGE.index("## Promises"):PAGE.index("## Inputs that were tried")]
    known = tests()
    for name in re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", promises):
        if name not in known:
            yield f"no test is called {name}"
    for file in re.findall(r"`(tests/[\w/]+\.\w+)`", promises):
        if not (ROOT / file).is_file():
            yield f"no file {file}"
    for paragraph in re.findall(r"^- \*\*.*?(?=^- \*\*|^###)", promises, re.M | re.S):
        if not re.search(r"`(tests/|[A-Z]\w+\.[A-Z])", paragraph):
            yield f"a promise without a test: {paragraph[:60]}"
    rows = re.findall(r"^\| (.+?) \| ([\d^]+) \| `(\w+)` in `([\w/.]+)` \|$", promises, re.M)
    if len(rows) < 15:
        yield f"found {len(rows)} rows of limits, expected at least 15"
    for what, said, constant, file in rows:
        base, _, power = said.partition("^")
        if value_of(constant, file) != int(base) ** int(power or 1):
            yield f"{what}: found {said}, expected the {value_of(constant, file)} of {constant} in {file}"


found = list(problems())
print("\n".join(found) or "every promise has its test")
sys.exit(1 if found else 0)
