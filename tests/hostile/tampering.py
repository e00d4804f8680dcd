#!/usr/bin/env python3
"""Tampered partials, records and results: never certified, and nothing that they ask for happens."""

import json
import os

from common import JOB, Hostile

SWEEP = ["sweep", "s.json", "--grid", "parallel.ep=2,4,8,7", "--grid", "topk=1..6", "--quiet", "--threads", "1"]

with Hostile("tampering") as h:
    h.write("s.json", JOB)
    h.run([*SWEEP, "--out", "whole.csv"])
    whole = h.read("whole.csv")
    h.run([*SWEEP, "--out", "t.csv", "--strict"])
    names = ["t.csv.partial", "t.csv.partial.json", "t.csv.partial.sums"]
    kept = {name: h.read(name) for name in names}
    for _ in range(h.count(200)):
        for name in names:
            h.write(name, kept[name])
        name = h.random.choice(names)
        text = bytearray(kept[name])
        at = h.random.randrange(len(text))
        kind = h.random.randrange(3)
        if kind == 0:
            text[at] = h.random.choice(b"0123456789,\n x")
        elif kind == 1:
            del text[at:at + h.random.choice([1, 30, 1000])]
        else:
            text[at:at] = text[at:at + 40]
        h.write(name, bytes(text))
        result = h.run([*SWEEP, "--out", "t.csv", "--resume"])
        if result.code == 0:
            h.holds(f"a damaged {name} is certified", h.read("t.csv") == whole)
            os.remove(h.path("t.csv"))

    # The counts of the chain, which say what is done already.
    for name in names:
        h.write(name, kept[name])
    lines = kept["t.csv.partial.sums"].decode().splitlines()
    for column, by in ((0, 1), (0, -2), (1, 1), (1, -1)):
        words = lines[-1].split()
        words[column] = str(int(words[column]) + by)
        h.write("t.csv.partial.sums", "\n".join([*lines[:-1], " ".join(words)]) + "\n")
        result = h.run([*SWEEP, "--out", "t.csv", "--resume"])
        h.holds(f"{words[:2]} is certified", result.code == 2 or h.read("t.csv") == whole)
        h.remove("t.csv")
        for name in names:
            h.write(name, kept[name])
    h.remove(*names)

    h.write("t.csv", whole)
    h.write("t.csv.json", h.read("whole.csv.json").replace(b"whole.csv", b"t.csv"))
    for damage in (whole + b"x", whole[:-5], whole.replace(b"1", b"2", 1), b""):
        h.write("t.csv", damage)
        result = h.run(["rerun", "t.csv.json"])
        h.holds("rerun vouches for a changed table", result.code == 1 and b"the same bytes" not in result.out.split(b"not ")[0])
        h.holds("a changed table is complete", h.run([*SWEEP, "--out", "t.csv", "--resume"]).code == 2)
    os.remove(h.path("t.csv"))
    h.holds("rerun vouches for a missing table", h.run(["rerun", "t.csv.json"]).code == 1)

    h.write("mine", "keep")
    before = sorted(os.listdir(h.folder)) + ["r.json"]
    commands = [["rerun", "r.json"], ["compare", "s.json", "--timeline", "mine"], ["compare", "s.json", "--report=mine"],
                ["compare", "s.json", "--timeline", "--", "mine"], ["trace", "synthesize", "--to", "mine"],
                ["trace", "convert", "s.json", "mine"], ["calibrate", "fit", "s.json", "-omine"],
                ["calibrate", "measure", "--out", "mine"], ["sweep", "s.json", "--grid", "topk=1", "--out", "mine", "--overwrite"],
                ["whatif", "s.json", "--map", "topk=1..2", "ep=2,4", "--picture", "mine"], ["completion", "bash"], [], ["sh"]]
    for command in commands:
        h.write("r.json", {"schema": "moesim.compare/1", "version": "1", "inputs": {"command": command},
                           "rows": {"file": "../mine", "sha256": "0" * 64}})
        result = h.run(["rerun", "r.json"])
        h.holds(f"{command} is the same", result.code in (1, 2))
        h.holds(f"{command} wrote", h.read("mine") == b"keep" and sorted(os.listdir(h.folder)) == sorted(before))
    h.write("deep.json", b'{"schema": "moesim.compare/1", "a": ' + b"[" * 100000 + b"]" * 100000 + b"}")
    h.holds("a deep result is refused", h.run(["rerun", "deep.json"]).refused())
    h.write("t.csv.json", b"[" * 100000)
    h.write("t.csv", whole)
    h.holds("a deep record is refused", h.run([*SWEEP, "--out", "t.csv", "--resume"]).refused())
    json.loads(kept["t.csv.partial.json"])
