"""Effects that a forecast adds, as measured in scaling recordings (moesim replay --explain lists them): host gaps, jitter,
scaling of gradients. The built-in values were read off a GPU cluster and say nothing about another machine.

Only scaling recordings are read, never the run that is to be forecast.
"""
import math
import statistics
from collections import defaultdict

from .cmd_format import DTYPE_BYTES, FormatError, Operation, read_rank_file
from .layout import is_counts

# Functions that return the rows gathered by the AllGather dispatcher.
COMBINES = ("_reduce_scatter_along_first_dim_moe", "_reduce_along_first_dim_moe")
# A forecast takes this quantile of equal forward segments as undisturbed, and the median elsewhere (replay/recording/denoise.cc).
LOW_QUANTILE = 0.05


def _segments(op: Operation):
    """(class, in the experts, ms) between the calls of an operation. Classes follow replay/recording/denoise.cc."""
    seen = defaultdict(int)
    edges, signs, exchanges = [], [], 0
    start = float(op.timestamp) - float(op.duration)
    reached = start
    calls = [sub for sub in op.subs if sub.comm_func is not None and not sub.source.endswith("_async")]
    for sub in calls:
        begin = float(sub.timestamp) - (0.0 if op.cmd_uid is not None else float(sub.duration))
        edges.append(max(0.0, begin - reached))
        reached = max(reached, begin) + float(sub.duration)
        exchange = sub.comm_func in ("all_to_all", "alltoall") and sub.group == "exp" and not is_counts(
            len(sub.shape or ()), sub.dtype)
        alternates = exchange or sub.group == "tp"
        signs.append((sub.source, seen[sub.source] % 2 if alternates else 0, exchange))
        seen[sub.source] += 1 if alternates else 0
    edges.append(max(0.0, float(op.timestamp) - reached))
    for index, length in enumerate(edges):
        before = signs[index - 1] if index else None
        after = signs[index] if index < len(signs) else None
        exchanges += bool(before and before[2])
        inside = bool(before and after) and (exchanges % 2 == 1 or (
            before[0] == "_gather_along_first_dim_moe" and after[0] in COMBINES))
        yield (op.name, before, after), inside, length


def _quantile(values, q):
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def _excess(pools, reference):
    """Mean over the reference value, less one, over pools by their time; 0 without any."""
    total = sum(sum(pool) for pool in pools)
    clean = sum(reference(pool) * len(pool) for pool in pools)
    return max(0.0, total / clean - 1) if clean > 0 else 0.0


def from_scaling(folders, profile: str = "host") -> dict:
    """A "moesim.constants/1" object for `moesim calibrate fit --constants`. Raises FormatError."""
    from .__main__ import _files_of

    forward, backward = defaultdict(list), defaultdict(list)
    experts = {"forward_step": defaultdict(list), "backward_step": defaultdict(list)}
    gaps, batches, scale_ms, scale_gb = defaultdict(list), [], 0.0, 0.0
    for path in _files_of(folders):
        lines = [line for line in read_rank_file(path).lines if isinstance(line, Operation)]
        forwards = sum(line.name == "forward_step" for line in lines)
        if forwards != 1:
            raise FormatError("%s: found %d forward_step lines, expected a scaling recording with one" % (path, forwards))
        for before, line in zip([None] + lines, lines):
            if before is not None and line.timestamp != "0" and before.timestamp != "0":
                gap = float(line.timestamp) - float(line.duration) - float(before.timestamp)
                for kind in {before.name, "loss_func" if before.name == "loss_func" else "other"}:
                    gaps[kind].append(max(0.0, gap) * 1e3)
            if line.name == "get_batch":
                batches.append(float(line.duration) * 1e3)
            if line.name in ("dp_allreduce", "exp_dp_allreduce") and line.shape:
                scale_ms += float(line.duration)
                scale_gb += math.prod(line.shape) * DTYPE_BYTES.get(line.dtype, 4) / 1e9
            if line.name in experts:
                pools = forward if line.name == "forward_step" else backward
                for key, inside, length in _segments(line):
                    if inside:
                        experts[line.name][(key, line.rank)].append(length)
                    else:
                        pools[key].append(length)
    if not forward or not backward:
        raise FormatError("%s: found no forward_step and backward_step" % folders[0])

    source = "scaling recordings of this machine (moesim-capture constants): "
    out = {}

    def put(name, value, unit, why, sigma=None):
        out[name] = {"value": value, "sigma": value / 2 if sigma is None else sigma, "unit": unit, "source": source + why}

    def low(pool):
        return _quantile(pool, LOW_QUANTILE)

    put("forward_jitter", _excess(forward.values(), low), "share", "mean of equal segments over their low twentieth")
    put("backward_jitter", _excess(backward.values(), statistics.median), "share", "mean of equal segments over the median")
    put("sustained_forward", _excess(experts["forward_step"].values(), low), "share",
        "mean of a rank's expert segments over their low twentieth")
    put("sustained_backward", _excess(experts["backward_step"].values(), statistics.median), "share",
        "mean of a rank's expert segments over the median")
    put("gradient_prescale", scale_ms / scale_gb if scale_gb else 0.0, "ms/GB",
        "gradient lines, whose reduction was not executed")
    put("batch_loading", statistics.median(batches) if batches else 0.0, "us", "get_batch")
    for name, key in (("gap_after_forward", "forward_step"), ("gap_before_backward", "loss_func"),
                      ("gap_after_backward", "backward_step"), ("gap_other", "other")):
        put(name, statistics.median(gaps[key]) if gaps[key] else 0.0, "us", "time between operations")
    why = "0: recorded as it is, or a GPU's alone (launches onto an idle device, clipping, clocks)"
    for name, unit in (("gradient_clip", "ms/1e9 parameters"), ("clip_rows", "rows"),
                       ("embedding_accumulation", "bytes/parameter"), ("exposed_gather", "us"),
                       ("exposed_exchange", "us"), ("fused_p2p", "us"), ("expert_spread", "share"),
                       ("dense_spread", "share"), ("loading_stall", "us"), ("mask_copy", "ms/GB")):
        put(name, 0.0, unit, why, 0.0)
    return {"schema": "moesim.constants/1", "profiles": {profile: out}}
