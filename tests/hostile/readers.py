#!/usr/bin/env python3
"""Files of every kind, damaged: bytes changed, cut, doubled and put in, or numbers at the ends of what integers and floats hold, several
at once. An answer that can be, or a refusal in one line. The files are the seeds of the fuzz targets, and some that no target reads."""

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
    ("fabric", ["compare", "own_x.json", "--timing", "flow", "--draws", "0"]),
]
GRAPHML = """<?xml version="1.0"?>
<graphml><key id="k" for="node" attr.name="kind" attr.type="string"/>
<key id="b" for="edge" attr.name="bandwidth" attr.type="double"/>
<graph edgedefault="undirected"><node id="a"><data key="k">gpu</data></node><node id="b"><data key="k">gpu</data>
</node><edge source="a" target="b"><data key="b">5e10</data></edge></graph></graphml>
"""
PIECES = [b"9" * 30, b"-1", b"1e400", b"NaN", b"null", b"[" * 200, b"{" * 200, b"\xff", b"\x00", b"\x1b[2J", b'"', b",",
          b"\n", b"\r\n", b"../" * 50, b"0" * 5000, b"</a>", b"\xe2\x80\xae"]


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


def changed(r, seed):
    text = bytearray(seed)
    for _ in range(r.choice([1, 1, 2, 8])):
        at = r.randrange(len(text) + 1)
        kind = r.randrange(5)
        if kind == 0 and text:
            text[at % len(text)] = r.randrange(256)
        elif kind == 1:
            del text[at:at + r.choice([1, 5, 100])]
        elif kind == 2:
            text[at:at] = text[at:at + r.choice([1, 20, 1000])]
        elif kind == 3:
            text[at:at] = r.choice(PIECES)
        else:
            del text[at:]
    return bytes(text)


def seeds_of(kind):
    """Names and texts of the seeds, with the endings that the command line knows them by."""
    for path in sorted(glob.glob(os.path.join(SOURCE, "tests/fuzz/corpus", kind, "*"))):
        try:
            text = of(path)
        except UnicodeDecodeError:
            continue
        ending = {"training_job": ".sh", "training_log": ".log", "router_trace": ".jsonl"}.get(kind, "")
        yield "x" + (os.path.splitext(path)[1] or ending), text


def of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


with Hostile("readers") as h:
    h.write("s.json", JOB)
    node = {"profile": "h100-sxm", "nodes": 1, "gpus_per_node": 2}
    for name in ("x.json", "x.graphml"):
        h.write("own_" + name, {"model": "olmoe", "cluster": {**node, "fabric": name}, "parallel": {"ep": 2}, "dispatcher": "alltoall"})
    h.write("own_gpu.json", {"name": "own", "profile": "gpu.json", "nodes": 2, "gpus_per_node": 8})
    h.write("four.json", {"model": {"hidden": 256, "layers": 1, "attention": {"heads": 4}, "experts": 4, "topk": 2, "expert_ffn": 512},
                          "parallel": {"ep": 2, "seq": 8}, "dispatcher": "alltoall", "cluster": "dgx-h100x1"})
    sample = glob.glob(os.path.join(SOURCE, "traces/samples/synthetic/*/scaling"))[0]
    job = os.path.basename(os.path.dirname(sample))
    for name in os.listdir(sample):
        h.write(f"{job}/{name}", of(os.path.join(sample, name)))
    rank = (f"{job}/{name}", of(os.path.join(sample, name)))
    result = h.run([*COMPARE, "--format", "json", "--quiet"]).out.decode()
    files = [(kind, list(seeds_of(kind)), words) for kind, words in KINDS] + [
        ("profile", [("gpu.json", of(os.path.join(SOURCE, "calibration/profiles/gpu/h100-sxm.json")))], [*COMPARE, "--cluster", "own_gpu.json"]),
        ("GraphML", [("x.graphml", GRAPHML)], ["compare", "own_x.graphml", "--timing", "flow", "--draws", "0"]),
        ("list", [("x.csv", "topk,parallel.ep\n1,8\n2,4\n")], ["sweep", "s.json", "--list", "x.csv", "--out", "made.csv"]),
        ("result", [("x.json", result)], ["rerun", "x.json"]),
        ("recording", [rank], ["trace", "info", job]),
        ("recording", [rank], ["replay", job, "--cluster", "dgx-h100x2", "--draws", "0"]),
    ]

    def attack(words, name, content):
        h.write(name, content)
        h.remove("made", "made.json", "made.csv", "made.csv.json")
        return h.run([word.format(name) for word in words] + ["--quiet"])

    for what, seeds, words in files:
        h.holds(f"{what}: no seed has an answer", any(attack(words, *seed).code == 0 for seed in seeds))
        for _ in range(h.count(50)):
            name, text = h.random.choice(seeds)
            attack(words, name, at_the_ends(h.random, text))
            attack(words, name, changed(h.random, text.encode()))
        h.write(*seeds[0])
