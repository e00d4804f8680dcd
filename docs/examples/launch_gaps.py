#!/usr/bin/env python3
"""What a kernel takes of the host in eager PyTorch runs: docs/examples/launch_gaps.py TRACE...

Reads Kineto traces (.json, .json.gz, or tar archives of them) and prints for each thread that launches at least 40 kernels:
the launch call itself, and what passes from one launch to the next, less calls that wait for the device or for memory. Gaps
above 1 ms are the program's, not the framework's. `stacks`: the profiler wrote Python's stacks, too, which takes time.
"""
import gzip
import io
import json
import statistics
import sys
import tarfile
from collections import defaultdict

WAITS = ("Synchronize", "Memcpy", "WaitEvent", "Malloc", "Free", "EventQuery")
LONGEST_US, FEWEST = 1000, 40


def traces(path):
    """(name, trace) of every trace in a file."""
    if ".tar" in path:
        with tarfile.open(path) as archive:
            for member in sorted((m for m in archive.getmembers() if m.isfile()), key=lambda m: m.name):
                yield member.name, json.load(archive.extractfile(member))
    else:
        with open(path, "rb") as file:
            content = file.read()
        yield path, json.load(io.BytesIO(gzip.decompress(content) if path.endswith(".gz") else content))


def gaps(calls):
    """Microseconds from launch to launch of one thread's calls."""
    out, last, waited = [], None, 0.0
    for call in sorted(calls, key=lambda c: float(c["ts"])):
        if "Launch" in call["name"]:
            if last is not None:
                out.append(float(call["ts"]) - last - waited)
            last, waited = float(call["ts"]), 0.0
        elif any(word in call["name"] for word in WAITS):
            waited += float(call["dur"])
    return [gap for gap in out if gap < LONGEST_US]


def main(paths):
    print("%-28s %-22s %6s %7s %8s %8s %8s" % ("trace", "GPU", "stacks", "kernels", "call us", "median", "mean"))
    for path in paths:
        for name, trace in traces(path):
            events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
            threads = defaultdict(list)
            for event in events:
                if event.get("cat") in ("cuda_runtime", "cuda_driver"):
                    threads[event["tid"]].append(event)
            stacks = any(e.get("cat") == "python_function" for e in events)
            gpu = (trace.get("deviceProperties") or [{}])[0].get("name", "?")
            for _, calls in sorted(threads.items()):
                between = gaps(calls)
                if len(between) < FEWEST:
                    continue
                launches = [float(c["dur"]) for c in calls if "Launch" in c["name"]]
                print("%-28s %-22s %6s %7d %8.1f %8.1f %8.1f" % (
                    name.split("/")[-1][:28], gpu[:22], "yes" if stacks else "no", len(between) + 1,
                    statistics.median(launches), statistics.median(between), statistics.mean(between)))


if __name__ == "__main__":
    main(sys.argv[1:])
