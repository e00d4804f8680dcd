#!/usr/bin/env python3
"""Extreme legal arguments: an answer that can be, or a refusal in one line."""

import json
import math

from common import Hostile

MODELS = ["deepseek-v3", "mixtral-8x7b", "olmoe", "qwen3-30b-a3b"]
DISPATCHERS = ["allgather", "alltoall", "alltoall-legacy", "flex-deepep", "flex-hybridep", "torchtitan-alltoall",
               "torchtitan-equal-split", "megablocks-moe", "megablocks-dmoe-sparse", "deepspeed", "tutel", "expert-tp",
               "alltoall:balance=eplb:slots=256", "flex-deepep:balance=least-loaded:min_rows=1", "all"]


def possible(scenario):
    """Returns the violated invariants of an answer; empty: none."""
    t = scenario["time_us"]
    wrong = []
    if not (0 < t["low"] <= t["value"] <= t["high"] < math.inf):
        wrong.append(f"time {t}")
    parts = scenario["breakdown_us"]
    if any(v < -0.01 for v in parts.values()):
        wrong.append(f"parts {parts}")
    if abs(sum(parts.values()) - t["value"]) > 0.1 + 1e-5 * t["value"]:
        wrong.append(f"parts of {sum(parts.values())} in {t['value']}")
    if not 0 <= scenario.get("mfu", 0) <= 1:
        wrong.append(f"MFU {scenario['mfu']}")
    if not 0 <= scenario["peak_memory_bytes"]["max"] < math.inf:
        wrong.append(f"memory {scenario['peak_memory_bytes']}")
    if not 0 <= scenario.get("fits_probability", 0) <= 1:
        wrong.append(f"probability {scenario['fits_probability']}")
    return wrong


with Hostile("extremes") as h:
    for _ in range(h.count(300)):
        r = h.random
        words = ["compare", "--model", r.choice(MODELS), "--cluster", f"dgx-h100x{r.choice([1, 2, 16])}",
                 "--ep", str(2 ** r.randrange(0, 8)), "--seq", str(2 ** r.randrange(0, 32) - r.randrange(2)),
                 "--dispatcher", r.choice(DISPATCHERS), "--draws", r.choice(["0", "0", "2"]), "--quiet", "--format",
                 "json"]
        if r.random() < 0.3:
            words += ["--micro-batch", str(2 ** r.randrange(0, 20))]
        if r.random() < 0.3:
            words += ["--topk", str(r.choice([1, 2, 8, 64, 256]))]
        if r.random() < 0.5:
            words += ["--scope", "step", "--microbatches", str(r.choice([1, 7, 64, 10 ** 5, 10 ** 9]))]
        if r.random() < 0.2:
            words[words.index("--dispatcher") + 1] = (
                f"{r.choice(['alltoall', 'deepspeed', 'tutel'])}:capacity_factor={r.choice([1e-6, 1, 999.5, 1e6])}")
        result = h.run(words)
        if result.code != 0:
            continue
        for scenario in json.loads(result.out)["scenarios"]:
            wrong = possible(scenario)
            h.holds(f"{' '.join(words)}: {scenario['dispatcher']}: {wrong}", not wrong)
