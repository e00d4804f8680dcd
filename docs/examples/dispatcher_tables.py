#!/usr/bin/env python3
"""Prints the tables of docs/dispatchers.md: docs/examples/dispatcher_tables.py build/moesim"""
import json
import subprocess
import sys

MOESIM = sys.argv[1] if len(sys.argv) > 1 else "build/moesim"


def compare(*arguments):
    command = [MOESIM, "compare", "--format", "json", "--quiet", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def exchange(scenario):
    parts = scenario["breakdown_us"]
    return parts.get("dispatch", 0) + parts.get("combine", 0)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def header(*names):
    row(*names)
    print("|" + "---|" * len(names))


def crossover():
    print("\n## When AllGather wins\n")
    model = "docs/examples/crossover_model.json"
    header("cluster", "EP", "tokens per rank", "router", "routing", "phi", "forecast K*", "law", "forecast / law")
    for cluster, ep, seq, router, routing in [
            ("dgx-h800x1", 4, 8192, "bf16", "balanced"), ("dgx-h800x1", 8, 8192, "bf16", "balanced"),
            ("dgx-h800x1", 8, 8192, "fp32", "balanced"), ("dgx-h800x1", 8, 8192, "bf16", "gini:0.4"),
            ("dgx-h100x1", 8, 8192, "bf16", "balanced"), ("dgx-h100x1", 8, 128, "bf16", "balanced"),
            ("dgx-h100x2", 16, 8192, "bf16", "balanced"), ("dgx-h100x8", 64, 8192, "bf16", "balanced"),
            ("dgx-h100x8", 64, 8192, "bf16", "gini:0.4")]:
        before, found, phi = None, None, 1
        for k in range(1, 33):
            result = compare("--model", model, "--cluster", cluster, "--ep", ep, "--seq", seq, "--router-dtype", router,
                             "--routing", routing, "--topk", k, "--dispatcher", "allgather,alltoall", "--draws", 0)
            lead = exchange(result["scenarios"][1]) - exchange(result["scenarios"][0])
            phi = result["routing"]["rank_imbalance"]
            if lead > 0:
                found = k - 1 + (-before / (lead - before) if before is not None else 0)
                break
            before = lead
        law = ep * (2 + {"bf16": 2, "fp32": 4}[router]) / 4 / phi
        row(cluster, ep, seq, router, routing, f"{phi:.2f}", f"{found:.2f}" if found else "none to 32", f"{law:.2f}",
            f"{found / law:.2f}" if found else "")


def megascale():
    print("\n## MegaScale-MoE's crossover (Mixtral-8x7B, 8 GPUs)\n")
    header("cluster", "K", "allgather dispatch + combine [us]", "alltoall", "alltoall / allgather")
    for cluster in ["dgx-h800x1", "dgx-h100x1"]:
        for k in [4, 5, 6, 7, 8]:
            s = compare("--model", "mixtral-8x7b", "--cluster", cluster, "--ep", 8, "--topk", k, "--router-dtype", "bf16",
                        "--dispatcher", "allgather,alltoall", "--draws", 0)["scenarios"]
            row(cluster, k, f"{exchange(s[0]):.0f}", f"{exchange(s[1]):.0f}", f"{exchange(s[1]) / exchange(s[0]):.3f}")


def published_layer():
    print("\n## The halves of an AllGather layer on 8 H800 (bytedance/flux)\n")
    header("experts", "top-k", "half", "gather or reduce-scatter", "rows", "products and scales", "host", "forecast [ms]")
    for experts, topk in [(32, 4), (8, 2)]:
        result = compare("docs/examples/flux_layer.json", "--dispatcher", "allgather-torch", "--detail", "operations",
                         "--draws", 0, "--framework", "none", "--topk", topk,
                         "--model", f"docs/examples/flux_e{experts}.json")
        operations = [o for o in result["scenarios"][0]["operations"] if o["part"] == "dispatcher"]
        first = next(o for o in operations if o["what"] == "tokens")
        middle = next(o for o in operations if o["what"] == "activation")
        end = max(o["start_us"] + o["time_us"] for o in operations)
        halves = [(first["start_us"], middle["start_us"]), (middle["start_us"] + middle["time_us"], end)]
        for half, (begin, until) in enumerate(halves):
            inside = [o for o in operations if begin <= o["start_us"] < until]
            total = lambda keep: sum(o["time_us"] for o in inside if keep(o)) * 1e-3
            wire = total(lambda o: o["op"] in ("all_gather", "reduce_scatter"))
            rows = total(lambda o: o["category"] in ("permute", "unpermute"))
            products = total(lambda o: o["category"] == "expert")
            whole = (until - begin) * 1e-3
            row(experts, topk, f"layer{half}", f"{wire:.2f}", f"{rows:.2f}", f"{products:.2f}",
                f"{whole - wire - rows - products:.2f}", f"{whole:.2f}")


crossover()
megascale()
published_layer()
