#!/usr/bin/env python3
"""Files whose numbers stand at the ends of what integers and floats hold, several at once: an answer that can be, or a
refusal in one line. The files are the seeds of the fuzz targets."""

import glob
import os
import re

from common import JOB, SOURCE, Hostile

# Powers of two whose products wrap to 0, and their neighbours.
ENDS = ["0", "1", "2", "4096", "65536", "1048576", "16777216", "2147483647", "2147483648", "4294967296", "1099511627776",
        "4611686018427387904", "9223372036854775807", "9223372036854775808", "-1", "0.5", "1e-300", "1e300", "1e999"]
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
COMPARE = ["compare", "s.json", "--draws", "0"]
# Folder of seeds, how the command line takes them.
KINDS = [
    ("scenario", ["compare", "{}", "--draws", "0"]),
    ("model", [*COMPARE, "--model", "{}"]),
    ("model", ["compare", "--model", "{}", "--cluster", "dgx-h100x2", "--scope", "step", "--draws", "0"]),
    ("cluster", [*COMPARE, "--cluster", "{}"]),
    ("dispatching", ["compare", "four.json", "--draws", "0", "--routing", "{}"]),
    ("faults", [*COMPARE, "--scope", "step", "--faults", "{}"]),
    ("training_table", ["validate", "--training", "{}"]),
    ("training_table", ["validate", "--memory", "{}"]),
    ("decision_table", ["validate", "--decisions", "{}"]),
    ("memory_table", ["validate", "--memory", "{}"]),
    ("training_job", ["compare", "{}", "--cluster", "dgx-h100x1", "--draws", "0"]),
    ("training_log", ["validate", "--log", "{}", "--cluster", "dgx-h100x2"]),
    ("kineto", ["trace", "convert", "{}", "made"]),
    ("router_trace", ["trace", "convert", "{}", "made.json"]),
    ("nccl_log", ["calibrate", "import", "nccl-tests", "{}", "--out", "made.csv"]),
    ("deepep_log", ["calibrate", "import", "deepep", "{}", "--gpu", "h200-sxm", "--gpus-per-node", "8", "--out", "made.csv"]),
    ("inspector_log", ["calibrate", "import", "nccl-inspector", "{}", "--gpu", "h200-sxm", "--out", "made.csv"]),
    ("fabric", ["compare", "own.json", "--timing", "flow", "--draws", "0"]),
]


def at_the_ends(r, text):
    """One to eight of its numbers, mostly by the same end; neighbours are often factors of one product."""
    places = list(NUMBER.finditer(text))
    if not places:
        return text
    first, count, end = r.randrange(len(places)), r.choice([1, 2, 3, 8]), r.choice(ENDS)
    chosen = places[first:first + count] if r.random() < 0.7 else r.sample(places, min(count, len(places)))
    for place in sorted(chosen, key=lambda m: -m.start()):
        text = text[:place.start()] + (end if r.random() < 0.8 else r.choice(ENDS)) + text[place.end():]
    return text


def seeds_of(kind):
    """The texts among the seeds, with the endings that the command line knows them by."""
    for path in sorted(glob.glob(os.path.join(SOURCE, "tests/fuzz/corpus", kind, "*"))):
        with open(path, "rb") as file:
            content = file.read()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        ending = {"training_job": ".sh", "training_log": ".log", "router_trace": ".jsonl"}.get(kind, "")
        yield text, os.path.splitext(path)[1] or ending


with Hostile("numbers") as h:
    h.write("s.json", JOB)
    h.write("own.json", {"model": "olmoe", "cluster": {"profile": "h100-sxm", "nodes": 1, "gpus_per_node": 2,
                                                       "fabric": "x.json"}, "parallel": {"ep": 2}, "dispatcher": "alltoall"})
    h.write("four.json", {"model": {"hidden": 256, "layers": 1, "attention": {"heads": 4}, "experts": 4, "topk": 2, "expert_ffn": 512},
                          "parallel": {"ep": 2, "seq": 8}, "dispatcher": "alltoall", "cluster": "dgx-h100x1"})

    def attack(words, text, ending):
        name = "x" + ending
        h.write(name, text)
        h.remove("made", "made.json", "made.csv")
        return h.run([word.format(name) for word in words] + ["--quiet"])

    for kind, words in KINDS:
        seeds = list(seeds_of(kind))
        h.holds(f"{kind}: no seed has an answer", any(attack(words, *seed).code == 0 for seed in seeds))
        for _ in range(h.count(60)):
            text, ending = h.random.choice(seeds)
            attack(words, at_the_ends(h.random, text), ending)
