#!/usr/bin/env python3
"""Stands in for moesim-bench-cuda where there is no GPU: the same options, names and output, with times of a made-up GPU
that is a little slower than an H200, clocks and one throttled row."""
import json
import random
import re
import sys

CASES = [("latency/launch", 0.5), ("latency/host_sync", 0.5), ("latency/smallest_kernel", 0.5), ("latency/d2h_copy", 0.5),
         ("latency/nccl_single_rank", 1), ("overlap/product_alone", 0.5), ("overlap/product_beside_copies", 0.5),
         ("overlap/product_beside_kernel/sms:20", 0.8)]
for kind in ("gather_rows", "scatter_rows", "scatter_add", "elementwise", "copy", "sort"):
    CASES += [("kernel/class:%s/bytes:%d/launches:1" % (kind, 1 << power), 0.5) for power in (20, 24, 28)]
CASES += [("kernel/class:elementwise/bytes:50331648/launches:1/of:fp8", 0.5)]
for n, k in ((4096, 4096), (7168, 2048), (14336, 4096)):
    for m in (16, 256, 2048, 8192):
        for clocks in ("burst", "sustained") if m == 8192 else ("burst",):
            CASES += [("gemm/m:%d/n:%d/k:%d/dtype:bf16/library:cublas/clocks:%s" % (m, n, k, clocks), 0.6)]
CASES += [("grouped_gemm/groups:8/m:%d/n:4096/k:14336/dtype:bf16/backend:grouped/pass:fwd/skew:none" % m, 0.8)
          for m in (256, 2048)]
CASES += [("all_gather/nodes:1/ranks:2/bytes:1048576/dtype:float/library:nccl", 0.1)]
CASES += [("%s/nodes:1/ranks:8/bytes:%d/dtype:float/library:nccl" % (op, 1 << power), 0.1)
          for op in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_recv") for power in (20, 28)]
CLOCK, MOST = 1900.0, 1980.0


def seconds(name):
    values = dict(part.split(":", 1) for part in name.split("/") if ":" in part)
    if name.startswith("latency/"):
        return {"launch": 2.4e-6, "host_sync": 9e-6, "smallest_kernel": 2.1e-6}.get(name.split("/")[1], 6e-6)
    if name.startswith("overlap/"):
        return 200e-6 * (1.15 if "copies" in name else 1.2 if "kernel" in name else 1)
    if name.startswith("kernel/"):
        share = {"copy": 0.9, "sort": 0.3, "scatter_add": 0.35}.get(values["class"], 0.7)
        return 3e-6 + int(values["bytes"]) / (share * 4.4e12)
    if "ranks" in values:  # of two ranks as where the second GPU is taken
        return 15e-6 + int(values["bytes"]) / 300e9 if values["ranks"] == "8" else 0
    flops = 2.0 * float(values["m"]) * int(values["n"]) * int(values["k"]) * int(values.get("groups", 1))
    moved = 2.0 * int(values["n"]) * int(values["k"]) * int(values.get("groups", 1))
    slow = 1.2 if values.get("clocks") == "sustained" else 1
    return 4e-6 + max(flops / 620e12 * slow, moved / 3.9e12)


def main():
    options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
    if "--dry-run" in sys.argv:
        for name, cost in CASES:
            print("%6.1f s  %s" % (cost, name))
        print("%d benchmarks, about %.0f s" % (len(CASES), sum(cost for _, cost in CASES)))
        return
    wanted = re.compile(options.get("benchmark_filter", "."))
    rows = []
    for name, _ in CASES:
        whole = name + "/min_time:0.200/manual_time"
        if not wanted.search(whole):
            continue
        row = {"name": whole, "run_name": whole, "run_type": "iteration", "time_unit": "us"}
        if seconds(name) == 0:
            row.update(error_occurred=True, error_message="skipped: one GPU", real_time=0)
        else:
            scatter = random.Random(name).gauss(0, 0.01)
            throttled = name.endswith("m:2048/n:4096/k:4096/dtype:bf16/library:cublas/clocks:burst")
            row.update(real_time=seconds(name) * 1e6 * (1 + scatter) * (1.6 if throttled else 1), cpu_time=1,
                       sm_MHz=1100.0 if throttled else CLOCK, most_sm_MHz=MOST, power_W=610.0, temperature_C=61.0)
        rows.append(row)
    out = {"context": {"gpu": "H200-SXM5-141GB", "state_before": "stand-in"}, "benchmarks": rows}
    with open(options["benchmark_out"], "w") as file:
        json.dump(out, file)


main()
