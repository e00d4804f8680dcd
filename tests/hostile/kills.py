#!/usr/bin/env python3
"""Killed at any moment, and several at a time: whole files, the same bytes, nothing left behind."""

import os
import signal
import subprocess
import time

from common import JOB, Hostile

SWEEP = ["sweep", "s.json", "--grid", "topk=1..8", "--grid", "routing.gini=0..0.6:0.05", "--grid", "seed=1..5", "--quiet"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

with Hostile("kills") as h:
    def kill(words, within, *signals):
        """Ends a command at some moment."""
        child = h.start(words, **QUIET)
        time.sleep(h.random.random() * within)
        child.send_signal(h.random.choice(signals))
        child.wait()

    h.write("s.json", {key: value for key, value in JOB.items() if key != "routing"})
    h.run([*SWEEP, "--out", "whole.csv"])
    begin = time.monotonic()
    h.run([*SWEEP, "--out", "again.csv"])
    lasts = time.monotonic() - begin
    whole = h.read("whole.csv")
    for i in range(h.count(40)):
        for _ in range(3):
            kill([*SWEEP, "--out", "t.csv", "--resume"], lasts, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
            if os.path.exists(h.path("t.csv")):
                h.holds("a table that appears is whole", h.read("t.csv") == whole)
        h.run([*SWEEP, "--out", "t.csv", "--resume"])
        h.holds("a resumed table is the whole one", h.read("t.csv") == whole)
        left = [n for n in os.listdir(h.folder) if "partial" in n]
        h.holds(f"{left} are left", not left)
        os.remove(h.path("t.csv"))

    # Two sweeps and --overwrite on one file: one wins or is refused, no table is cut.
    for i in range(h.count(30)):
        children = []
        for _ in range(3):
            children.append(h.start([*SWEEP, "--out", "t.csv", "--overwrite"], **QUIET))
            time.sleep(h.random.random() * lasts)
        codes = [child.wait() for child in children]
        h.holds(f"exit codes {codes}", set(codes) <= {0, 2} and 0 in codes)
        h.holds("a table of several sweeps is whole", h.read("t.csv") == whole)

    # A folder appears whole or not at all, and nothing beside it.
    for i in range(h.count(40)):
        kill(["trace", "synthesize", "--out", "made", "--quiet"], 0.1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        jobs = os.listdir(h.path("made")) if os.path.exists(h.path("made")) else []
        h.holds("an empty folder is left", jobs or not os.path.exists(h.path("made")))
        h.holds(f"{jobs} are left", all(not name.startswith(".") for name in jobs))
        for name in jobs:
            h.holds(f"{name} is whole", sorted(os.listdir(h.path(f"made/{name}"))) == ["realistic", "scaling"])
        h.remove("made")

    # A result that replaces another.
    for i in range(h.count(40)):
        h.write("out.json", "old")
        kill(["compare", "s.json", "--draws", "0", "--timeline", "out.json"], 0.05, signal.SIGTERM)
        text = h.read("out.json")
        h.holds("a file that was replaced is whole", text == b"old" or text.rstrip().endswith(b"}"))
        left = [n for n in os.listdir(h.folder) if n.endswith("-tmp")]
        h.holds(f"{left} are left", not left)
