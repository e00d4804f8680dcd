#!/usr/bin/env python3
"""Names that a terminal, a spreadsheet or a browser would obey."""

import os
import re

from common import JOB, Hostile

RAW = ["\x1b]0;owned\x07", "\x1b[1mINK\x1b[0m", "two\nFORGED: lines", "\x1b[2J", "\x9b31m", "\u202eevil", "\u2066x", "\x7f", "\u2028line"]
HTML = ["<script>alert(1)</script>", "</script><script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "<!--<script>"]
FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1+cmd|x", "-2+3+cmd", "\t=1+1"]
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

with Hostile("injection") as h:
    for text in RAW + HTML + FORMULAS:
        h.write("c.json", {"name": text, "profile": "h100-sxm", "nodes": 2, "gpus_per_node": 8})
        h.write("s.json", {**JOB, "cluster": "c.json"})
        for words in (["compare", "s.json"], ["compare", "s.json", "--format", "json"], ["compare", "s.json", "--format", "csv"],
                      ["whatif", "s.json", "--set", "topk=1"], ["compare", "s.json", "--model", text],
                      ["compare", "s.json", "--dispatcher", text], ["whatif", "s.json", "--set", text + "=1"],
                      [text], ["compare", "--" + text]):
            result = h.run([*words, *(["--draws", "0"] if words[0] == "compare" else [])])
            shown = (result.out + result.err).decode(errors="strict")
            h.holds(f"{words} prints what is obeyed", not OBEYED.search(shown))
            h.holds(f"{words} prints a line of a name", not re.search("^FORGED", shown, re.M))
        result = h.run(["compare", "s.json", "--draws", "0", "--report", "page.html", "--timeline", "t.json", "--quiet"])
        if result.code == 0:
            page = h.read("page.html").decode()
            h.holds("a page or a timeline holds what is obeyed",
                    not OBEYED.search(h.read("t.json").decode()) and (text not in RAW or text not in page))
            for tag in HTML:
                h.holds(f"{tag} stands in a page", tag not in page)
        h.run(["sweep", "s.json", "--list", "cluster=" + text + ",dgx-h100x2", "--out", "t.csv", "--overwrite", "--quiet"])
        if os.path.exists(h.path("t.csv")):
            for line in h.read("t.csv").decode().splitlines():
                for cell in re.findall(r'(?:^|,)"?([=@][^,]*|[+-][^,"]*[^-+0-9.e,"%][^,]*)', line):
                    h.fail(f"a cell that is a formula: {cell!r}")
