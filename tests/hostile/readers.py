#!/usr/bin/env python3
"""Files of every kind with bytes changed, cut, doubled and put in: read, or refused in one line."""

import glob
import os

from common import JOB, SOURCE, Hostile

GRAPHML = """<?xml version="1.0"?>
<graphml><key id="k" for="node" attr.name="kind" attr.type="string"/>
<key id="b" for="edge" attr.name="bandwidth" attr.type="double"/>
<graph edgedefault="undirected"><node id="a"><data key="k">gpu</data></node><node id="b"><data key="k">gpu</data>
</node><edge source="a" target="b"><data key="b">5e10</data></edge></graph></graphml>
"""
PIECES = [b"9" * 30, b"-1", b"1e400", b"NaN", b"null", b"[" * 200, b"{" * 200, b"\xff", b"\x00", b"\x1b[2J", b'"', b",",
          b"\n", b"\r\n", b"../" * 50, b"0" * 5000, b"</a>", b"\xe2\x80\xae"]


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


def of(path):
    with open(path, "rb") as file:
        return file.read()


with Hostile("readers") as h:
    sample = glob.glob(os.path.join(SOURCE, "traces/samples/synthetic/*/scaling"))[0]
    ranks = sorted(os.listdir(sample))
    for name in ranks:
        h.write("trace/" + name, of(os.path.join(sample, name)))
    h.write("s.json", JOB)
    h.write("done.csv", "")
    h.run(["compare", "s.json", "--draws", "0", "--format", "json"])
    result = h.run(["compare", "s.json", "--draws", "0", "--format", "json", "--quiet"]).out
    job = of(h.path("s.json"))
    profile = of(os.path.join(SOURCE, "calibration/profiles/gpu/h100-sxm.json"))
    cluster = b'{"name": "c", "profile": "h100-sxm", "nodes": 2, "gpus_per_node": 8}'
    kinds = [
        ("x.json", job, ["compare", "x.json", "--draws", "0"]),
        ("x.json", cluster, ["compare", "s.json", "--cluster", "x.json", "--draws", "0"]),
        ("x.json", profile, ["compare", "s.json", "--set-profile-is-none"]),
        ("x.graphml", GRAPHML.encode(), ["compare", "own.json", "--timing", "flow", "--draws", "0"]),
        ("x.csv", b"topk,parallel.ep\n1,8\n2,4\n", ["sweep", "s.json", "--list", "x.csv"]),
        ("x.json", b'{"slow_gpus": [{"gpu": 3, "factor": 1.5}]}', ["compare", "s.json", "--faults", "x.json", "--draws", "0"]),
        ("x.json", result, ["rerun", "x.json"]),
        ("trace/" + ranks[0], of(os.path.join(sample, ranks[0])), ["trace", "info", "trace"]),
        ("trace/" + ranks[0], of(os.path.join(sample, ranks[0])), ["replay", "trace", "--cluster", "dgx-h100x2", "--draws", "0"]),
    ]
    kinds[2] = ("gpu.json", profile, ["compare", "s.json", "--cluster", "own_gpu.json", "--draws", "0"])
    h.write("own_gpu.json", {"name": "own", "profile": "gpu.json", "nodes": 2, "gpus_per_node": 8})
    h.write("own.json", {"model": "olmoe", "cluster": {"profile": "h100-sxm", "nodes": 1, "gpus_per_node": 2,
                                                       "fabric": "x.graphml"}, "parallel": {"ep": 2},
                         "dispatcher": "alltoall"})
    for _ in range(h.count(90)):
        for name, seed, words in kinds:
            h.write(name, changed(h.random, seed))
            h.run([*words, "--quiet"])
            h.write(name, seed)
