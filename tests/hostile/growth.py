#!/usr/bin/env python3
"""Small inputs that ask for much: limits are asked before the work, time and memory grow with the input."""

import glob
import gzip
import json
import os
import zlib

from common import JOB, SOURCE, Hostile

MB = 1 << 20

with Hostile("growth") as h:
    h.write("s.json", JOB)

    def bounded(what, words, seconds, peak, code=None):
        result = h.run(words)
        if h.options.sanitized:
            return
        h.holds(f"{what}: {result.seconds:.1f} s", result.seconds < seconds)
        h.holds(f"{what}: {result.peak / MB:.0f} MB", result.peak < peak)
        if code is not None:
            h.holds(f"{what}: exit {result.code}", result.code == code)

    size = 2 if h.options.short else 20
    numbers = b'{"model": [' + b"0," * (size * MB // 2) + b"0]}"
    h.write("numbers.json", numbers)
    bounded("an array of numbers", ["compare", "numbers.json"], 20, 60 * MB + 45 * len(numbers), 2)
    keys = {f"k{i}": i for i in range(20_000 if h.options.short else 200_000)}
    h.write("keys.json", keys)
    bounded("many keys", ["compare", "keys.json"], 10, 400 * MB, 2)
    rows = {str(i): {"num_local_tokens_per_expert": [1] * 8} for i in range(2_000 if h.options.short else 20_000)}
    h.write("ranks.json", {"ep": 8, "experts": 8, "per_rank_results": rows})
    bounded("many ranks", ["compare", "s.json", "--routing", "ranks.json"], 10, 600 * MB, 2)
    h.write("deep.json", b"[" * (size * MB))
    bounded("depth", ["compare", "deep.json"], 5, 200 * MB, 2)

    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(bomb.compress(b" " * (64 * MB)) for _ in range(4 if h.options.short else 40)) + bomb.flush()
    h.write("bomb/rank0.json.gz", packed)
    bounded("a gzip bomb", ["trace", "convert", "--from", "kineto", "bomb", "out"], 10, 300 * MB, 2)
    for what, inside in (("white space", b"\n"), ("digits", b"1"), ("letters", b"a")):
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)  # piece by piece: what this script holds counts as its child's
        pieces = [packer.compress(b'{"traceEvents":[' + (b'"' if what == "letters" else b""))]
        pieces += [packer.compress(inside * MB) for _ in range(100 if h.options.short else 500)]
        h.write("blank/rank0.json.gz", b"".join(pieces) + packer.flush())
        bounded(f"a gzip of {what}", ["trace", "convert", "--from", "kineto", "blank", "out"], 10, 200 * MB, 2)
        h.write("blanks.json", b'{"model": [' + inside * (size * MB) + b"x}")
        bounded(f"JSON of {what}", ["compare", "blanks.json"], 10, 60 * MB + 20 * size * MB, 2)
        said = h.run(["compare", "blanks.json"]).err
        h.holds(f"a message of {len(said)} bytes", len(said) < 1000)
    event = {"ph": "X", "cat": "kernel", "name": "x", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {}}
    whole = gzip.compress(json.dumps({"traceEvents": [event] * 50}).encode())
    for cut in range(1, 9):
        h.write("cut/rank0.json.gz", whole[:-cut])
        result = h.run(["trace", "convert", "--from", "kineto", "cut", f"out{cut}"])
        h.holds(f"gzip without its last {cut} bytes: {result.err!r}", result.code == 2 and b"cut short" in result.err)

    head = b'<?xml version="1.0"?><graphml><graph edgedefault="undirected">'
    for name, inside in (("nodes", b'<node id="n"/>' * ((1 << 20) + 1)), ("levels", b"<a>" * 100_000)):
        h.write("x.graphml", head + inside)
        h.write("own.json", {**JOB, "cluster": {"profile": "h100-sxm", "nodes": 1, "gpus_per_node": 8, "fabric": "x.graphml"}})
        bounded(f"GraphML of many {name}", ["compare", "own.json", "--timing", "flow"], 10, 300 * MB, 2)
    alone = 20_000 if h.options.short else 100_000
    wired = {"nodes": [{"name": f"g{i}", "kind": "gpu"} for i in range(16 + alone)] + [{"name": "leaf", "kind": "leaf"}],
             "links": [{"from": f"g{i}", "to": "leaf", "bandwidth": "50GBps", "latency": "1us"} for i in range(16)]}
    h.write("own.json", {**JOB, "cluster": {"profile": "h100-sxm", "nodes": 2, "gpus_per_node": 8, "fabric": wired}})
    bounded("GPUs that nothing reaches", ["compare", "own.json", "--timing", "flow"], 15, 800 * MB, 2)
    for routers in (1, 4096):
        h.write("own.json", {**JOB, "cluster": {"profile": "h100-sxm", "nodes": 2, "gpus_per_node": 8,
                                                "fabric": {"preset": "dragonfly", "nodes": 16384, "routers": routers,
                                                           "nodes_per_router": 1}}})
        bounded(f"a dragonfly of {routers} routers", ["compare", "own.json", "--timing", "flow"], 5, 200 * MB, 2)
    deepseek = ["compare", "--model", "deepseek-v3", "--cluster", "dgx-h100x16", "--ep", "64"]
    bounded("draws", [*deepseek, "--draws", "100000"], 5, 200 * MB, 2)
    bounded("microbatches", [*deepseek, "--scope", "step", "--microbatches", "260000"], 5, 200 * MB, 2)
    bounded("EP under flow", ["compare", "--model", "olmoe", "--cluster", "dgx-h100x512", "--ep", "4096", "--timing", "flow"], 5,
            200 * MB, 2)
    flow = ["compare", "--scope", "step", "--draws", "0", "--dispatcher", "alltoall", "--model", "qwen3-30b-a3b", "--timing", "flow"]
    bounded("replicas under flow", [*flow, "--cluster", "dgx-h100x4096", "--ep", "128"], 5, 200 * MB, 2)
    bounded("slots", ["compare", "s.json", "--placement", "balanced:slots=1048576"], 5, 200 * MB, 2)
    sample = glob.glob(os.path.join(SOURCE, "traces/samples/synthetic/*/scaling"))[0]
    bounded("replayed microbatches", ["replay", sample, "--microbatches", "65536"], 5, 200 * MB, 2)
    h.write("deep.toml", "a." * 50_000 + "a = 1\n")
    h.write("deep.sh", "A=(" * 50_000)
    for name in ("deep.toml", "deep.sh"):
        bounded(name, ["compare", name], 5, 200 * MB, 2)
    for axis in ("topk=1..1000000000000", "seed=" + ",".join("1" * 7 for _ in range(1000))):
        h.run(["sweep", "s.json", "--grid", axis, "--dry-run"])
    os.remove(h.path("numbers.json"))
