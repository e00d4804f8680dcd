#!/usr/bin/env python3
"""Defects of ordinary machines: text that is not UTF-8, loops of links, folders that cannot be read, no room."""

import os
import subprocess

from common import JOB, Hostile

with Hostile("dirt") as h:
    h.write("s.json", JOB)
    os.symlink("loop", h.path("loop"))
    os.mkdir(h.path("empty"))
    os.mkdir(h.path("closed"))
    os.chmod(h.path("closed"), 0)
    os.symlink("/dev/zero", h.path("zero.json"))
    os.mkfifo(h.path("pipe.json"))
    h.write("latin.json", b'{"model": "caf\xe9"}')
    h.write("latin.csv", b"topk\n\xff\n")
    h.write("latin/rank0.txt", b"\xe9\n")
    dirty = ["loop", "empty", "closed", "closed/x", "zero.json", "pipe.json", "latin.json", "latin.csv", "latin", "missing",
             "a" * 300, "/", "/dev/null", "", "."]
    for path in dirty:
        for words in (["compare", path], ["compare", "s.json", "--cluster", path], ["compare", "s.json", "--model", path],
                      ["compare", "s.json", "--routing", path], ["compare", "s.json", "--faults", path],
                      ["sweep", "s.json", "--list", path], ["rerun", path], ["rerun", "s.json", "--in", path],
                      ["trace", "info", path], ["trace", "convert", path, "out"],
                      ["replay", path, "--cluster", "dgx-h100x1"], ["validate", "--all", path, "--cluster", "dgx-h100x1"],
                      ["calibrate", "check", path]):
            if h.options.short and h.random.random() < 0.5:
                continue
            result = h.run(words)
            h.holds(f"{words} is answered", result.code != 0 or path in ("/dev/null", "", "."))
    for word in (b"\xff", b"topk=\xc3\x28", b"--cluster=\xed\xa0\x80"):
        for words in (["compare", word], ["whatif", "s.json", "--set", word], ["sweep", "s.json", "--grid", word]):
            h.holds(f"{words} is refused", h.run(words).refused())
    made = h.run(["compare", "s.json", "--draws", "0", "--format", "json", "--quiet"]).out
    h.write("r.json", made)
    h.holds("a missing TMPDIR is one line", h.run(["rerun", "r.json"], env={"TMPDIR": "/missing"}).refused())
    answer = h.run(["compare", "s.json", "--draws", "0"]).out
    with open("/dev/full", "wb") as full:
        result = h.run(["compare", "s.json", "--draws", "0"], stderr=full, check=False)
        h.holds("a full stderr loses no answer", result.code == 0 and result.out == answer)
        result = h.run(["compare", "s.json", "--draws", "0", "--quiet"], stdout=full, check=False)
        h.holds("a full stdout is exit 2", result.code == 2 and result.err.count(b"\n") == 1)
    result = subprocess.run([h.moesim, "compare", "s.json", "--draws", "0"], cwd=h.folder, stdout=subprocess.PIPE,
                            preexec_fn=lambda: os.close(2), check=False)
    h.holds("a closed stderr loses no answer", result.returncode == 0 and result.stdout == answer)
