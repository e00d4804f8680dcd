#!/usr/bin/env python3
"""Times dispatch and combine of DeepEP and HybridEP where they are installed, one process a GPU, and prints a table that
`moesim calibrate import csv` reads.

    torchrun --nproc-per-node 8 calibration/bench/ep_kernels.py --out normal.csv
    mpirun -n 16 --map-by ppr:8:node -x MASTER_ADDR=node0 python3 calibration/bench/ep_kernels.py --kernels hybrid --out hybrid.csv

A time is what the library's own tests time: a dispatch whose layout is known, between events on the GPU, after all GPUs met,
with a cold L2; the median of the repeats, averaged over the ranks, as `calibrate import deepep` averages. Results are checked before
they are timed: a row holds one whole number in all columns, so that each rank knows what it must receive and what the sum is."""
import argparse
import collections
import os
import random
import socket
import statistics
import sys

SHAPES = ["7168/8/256", "4096/8/128", "2048/8/128"]  # DeepSeek-V3; Qwen3-235B-A22B; Qwen3-30B-A3B
# The tests of the libraries time 4,096 tokens a rank, and 128 for low latency.
TOKENS = {"normal": "1024,4096", "hybrid": "1024,4096", "low-latency": "128"}
COLUMNS = ["gpu", "source", "kernel", "dtype", "note", "ep", "nodes", "tokens", "hidden", "topk", "topk_groups",
           "bottleneck_GBps", "latency_us", "experts", "sms"]
WARM_UP, REPEATS = 5, 21
SCALED = 128  # elements of an fp8 scale
VALUES = 16  # whole numbers of a row: sums of VALUES copies are exact in bf16
# Writing so much empties every L2, and takes longer than the host needs to queue a call.
FLUSH_BYTES = 1 << 30
NVLINK_PEERS = 8  # DeepEP sends through the network beyond

# The place of a process: torchrun; Open MPI; MPICH and Intel MPI; Slurm.
PLACES = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
          "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"),
          "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
          "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")}
for name, others in PLACES.items():
    for other in others:
        if other in os.environ:
            os.environ.setdefault(name, os.environ[other])
RANK, RANKS, LOCAL_RANK = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))


def say(text, rank=0):
    if RANK == rank:
        print("ep_kernels.py: " + text, file=sys.stderr, flush=True)


def leave(code, text, rank=0):
    say(text, rank)
    sys.exit(code)


def refuse(found, expected, rank=0):
    leave(2, "found %s, expected %s" % (found, expected), rank)


def whole_numbers(text, separator, option):
    parts = text.split(separator)
    if not all(part.isdigit() and 0 < int(part) <= 1 << 20 for part in parts):
        refuse("%s %s" % (option, text), "positive whole numbers between '%s'" % separator)
    return [int(part) for part in parts]


class Case:
    """What one rank sends. Equal routing draws each token's experts alike; skewed routing draws expert e in proportion to 1/(e + 1)."""

    def __init__(self, shape, tokens, skewed):
        self.hidden, self.topk, self.experts = shape
        self.tokens, self.skewed = tokens, skewed
        draw = random.Random("%s %s %s %s" % (RANK, shape, tokens, skewed))
        weights = [1 / (expert + 1) for expert in range(self.experts)]
        self.chosen = []
        for _ in range(tokens):
            experts = [] if skewed else draw.sample(range(self.experts), self.topk)
            while len(experts) < self.topk:
                experts += draw.choices(range(self.experts), weights, k=self.topk)
                experts = list(dict.fromkeys(experts))[:self.topk]
            self.chosen.append(experts)
        self.values = [1 + (token + 5 * RANK) % VALUES for token in range(tokens)]

    def places(self, token):
        """Returns the distinct ranks to which a token goes."""
        return {expert * RANKS // self.experts for expert in self.chosen[token]}

    def text(self):
        return "%s routing, %d tokens of %d, top %d of %d" % ("skewed" if self.skewed else "equal", self.tokens, self.hidden, self.topk, self.experts)


class Bench:
    def __init__(self, torch, arguments):
        self.torch, self.dist = torch, torch.distributed
        self.dist.init_process_group("nccl")
        self.group = self.dist.new_group(list(range(RANKS)))
        self.nodes = len(set(self.of_all(socket.gethostname())))
        self.gpu, self.source = arguments.gpu, arguments.source
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.one = torch.ones(1, dtype=torch.float32, device="cuda")
        self.wrong = 0
        if RANK == 0:
            self.out = open(arguments.out, "w") if arguments.out else sys.stdout
            print(",".join(COLUMNS), file=self.out, flush=True)

    def of_all(self, mine):
        everyone = [None] * RANKS
        self.dist.all_gather_object(everyone, mine)
        return everyone

    def tensor(self, values, dtype):
        return self.torch.tensor(values, dtype=dtype, device="cuda")

    def repeated(self, values, columns, dtype):
        return self.tensor(values, dtype).unsqueeze(1).expand(len(values), columns).contiguous()

    def choices(self, case):
        return self.tensor(case.chosen, self.torch.int64), self.repeated([1.0] * case.tokens, case.topk, self.torch.float32)

    def times(self, *calls):
        """Returns the seconds of each call in each repeat; in one repeat all follow each other."""
        event = self.torch.cuda.Event
        for _ in range(WARM_UP):
            for call in calls:
                call()
        marks = []
        for _ in range(REPEATS):
            self.flush.zero_()
            self.dist.all_reduce(self.one)
            marks.append([event(enable_timing=True) for _ in range(len(calls) + 1)])
            marks[-1][0].record()
            for call, mark in zip(calls, marks[-1][1:]):
                call()
                mark.record()
        self.torch.cuda.synchronize()
        return [[before.elapsed_time(after) * 1e-3 for before, after in (mark[i:i + 2] for mark in marks)] for i in range(len(calls))]

    def row(self, case, kernel, dtype, times, sms=""):
        low, median, high = statistics.quantiles(times, n=4)
        medians, spreads = zip(*self.of_all((median, (high - low) / median)))
        mean = statistics.mean(medians)
        note = "median of %d repeats; quartiles %.1f %% apart; slowest rank %+.1f %%" % (
            REPEATS, 100 * max(spreads), 100 * (max(medians) / mean - 1))
        if case.skewed:  # moesim's laws are of equal routing, and derive skewed from it
            say("%s %s, %s: %.2f us, not in the table (%s)" % (kernel, dtype, case.text(), mean * 1e6, note))
        elif RANK == 0:
            fields = [self.gpu, self.source, kernel, dtype, note, RANKS, self.nodes, case.tokens, case.hidden, case.topk, "",
                      "", "%.3f" % (mean * 1e6), case.experts, sms]
            print(",".join(str(field) for field in fields), file=self.out, flush=True)

    def right(self, case, kernel, problem):
        """Returns whether no rank has a problem; says the first."""
        problems = ["rank %d: %s" % (rank, text) for rank, text in enumerate(self.of_all(problem)) if text]
        if problems:
            say("wrong result: %s, %s: %s" % (kernel, case.text(), problems[0]))
            self.wrong += 1
        return not problems

    def numbers(self, rows, scales=None):
        """Returns the number of each row, None where its columns differ."""
        found = [1.0] * len(rows)
        for part in [rows.float()] + ([] if scales is None else [scales]):
            low, high = part.amin(dim=-1).tolist(), part.amax(dim=-1).tolist()
            found = [None if before is None or a != b else before * a for before, a, b in zip(found, low, high)]
        # A kernel that casts to fp8 rounds the scale.
        return [None if number is None or abs(number - round(number)) > 1e-3 else round(number) for number in found]

    def received(self, case, got, by_expert=False):
        """Returns the problem of received rows, given as pairs of an expert here (0 where copies for a rank are merged) and a number."""
        here = case.experts // RANKS
        sent = [collections.Counter() for _ in range(RANKS)]
        for token, value in enumerate(case.values):
            places = [(e // here, e % here) for e in case.chosen[token]] if by_expert else [(p, 0) for p in case.places(token)]
            for place, expert in places:
                sent[place][expert, value] += 1
        expected = sum((of_rank[RANK] for of_rank in self.of_all(sent)), collections.Counter())
        got = collections.Counter(got)
        differ = sorted((key for key in expected | got if expected[key] != got[key]), key=str)
        if not differ:
            return ""
        return "%d rows for expert %d hold %s, expected %d" % (got[differ[0]], *differ[0], expected[differ[0]])

    def combined(self, case, rows, copies):
        for token, (got, value) in enumerate(zip(self.numbers(rows), case.values)):
            if got != value * copies(token):
                return "token %d holds %s, expected %d" % (token, got, value * copies(token))
        return "" if len(rows) == case.tokens else "%d tokens, expected %d" % (len(rows), case.tokens)

    def timed(self, case, kernel, dtype, problem, call, sms=""):
        if self.right(case, kernel, problem):
            self.row(case, kernel, dtype, *self.times(call), sms)

    def normal(self, deep_ep, cases):
        torch, library = self.torch, deep_ep.Buffer
        configs = [library.get_dispatch_config(RANKS), library.get_combine_config(RANKS)]
        widest = 2 * max(case.hidden for case in cases)
        buffer = library(self.group, max(config.get_nvl_buffer_size_hint(widest, RANKS) for config in configs),
                         max(config.get_rdma_buffer_size_hint(widest, RANKS) for config in configs) if RANKS > NVLINK_PEERS else 0)
        for case in cases:
            to_rank, to_node, to_expert, in_rank, _ = buffer.get_dispatch_layout(self.choices(case)[0], case.experts)
            plain = self.repeated(case.values, case.hidden, torch.bfloat16)
            scales = self.repeated(case.values, case.hidden // SCALED, torch.float32)
            ones = torch.ones((case.tokens, case.hidden), dtype=torch.bfloat16, device="cuda")
            for dtype, x in (("bf16", plain), ("fp8", (ones.to(torch.float8_e4m3fn), scales))):
                received, _, _, _, handle, _ = buffer.dispatch(x, num_tokens_per_rank=to_rank, num_tokens_per_rdma_rank=to_node,
                                                               is_token_in_rank=in_rank, num_tokens_per_expert=to_expert)
                numbers = self.numbers(*received) if dtype == "fp8" else self.numbers(received)
                self.timed(case, "deepep_v1_normal_dispatch", dtype, self.received(case, [(0, number) for number in numbers]),
                           lambda: buffer.dispatch(x, handle=handle), library.num_sms)
                if dtype == "fp8":
                    continue
                result = buffer.combine(received, handle)[0]
                self.timed(case, "deepep_v1_normal_combine", dtype, self.combined(case, result, lambda token: len(case.places(token))),
                           lambda: buffer.combine(received, handle), library.num_sms)

    def low_latency(self, deep_ep, cases):
        library = deep_ep.Buffer
        most = max(library.get_low_latency_rdma_size_hint(case.tokens, case.hidden, RANKS, case.experts) for case in cases)
        buffer = library(self.group, 0, most, low_latency_mode=True, num_qps_per_rank=max(case.experts for case in cases) // RANKS)
        for case in cases:
            buffer.clean_low_latency_buffer(case.tokens, case.hidden, case.experts)
            chosen, weights = self.choices(case)
            x = self.repeated(case.values, case.hidden, self.torch.bfloat16)
            experts_out = None
            for dtype in ("bf16", "fp8"):
                def dispatch():
                    return buffer.low_latency_dispatch(x, chosen, case.tokens, case.experts, use_fp8=dtype == "fp8")

                received, counts, handle, _, _ = dispatch()
                got = []
                for expert, count in enumerate(counts.tolist()):
                    parts = [part[expert][:count] for part in (received if dtype == "fp8" else (received,))]
                    got += [(expert, number) for number in self.numbers(*parts)]
                if experts_out is None:
                    experts_out = received.clone()
                result = buffer.low_latency_combine(experts_out, chosen, weights, handle)[0]
                good = self.right(case, "deepep_v1_lowlatency_dispatch", self.received(case, got, by_expert=True))
                summed = self.right(case, "deepep_v1_lowlatency_combine", self.combined(case, result, lambda token: case.topk))
                last = [handle]

                def keep():
                    last[0] = dispatch()[2]

                # In turn, as their two buffers alternate.
                times = self.times(keep, lambda: buffer.low_latency_combine(experts_out, chosen, weights, last[0]))
                if good:
                    self.row(case, "deepep_v1_lowlatency_dispatch", dtype, times[0])
                if summed and dtype == "bf16":
                    self.row(case, "deepep_v1_lowlatency_combine", dtype, times[1])

    def hybrid(self, deep_ep, cases):
        torch = self.torch
        # The library's own default is eight, whatever the machine.
        os.environ.setdefault("NUM_OF_RANKS_PER_NVLINK_DOMAIN", str(RANKS // self.nodes))
        for case in cases:
            chosen, weights = self.choices(case)
            for dtype in ("bf16", "fp8"):
                buffer = deep_ep.HybridEPBuffer(group=self.group, hidden_dim=case.hidden, max_num_of_tokens_per_rank=case.tokens,
                                                num_local_experts=case.experts // RANKS, use_fp8=dtype == "fp8")
                # HybridEP takes fp8 as bytes.
                x = self.repeated(case.values, case.hidden, torch.uint8 if dtype == "fp8" else torch.bfloat16)
                scales = self.repeated([1.0] * case.tokens, case.hidden // SCALED, torch.float32) if dtype == "fp8" else None

                def dispatch(handle=None):
                    return buffer.dispatch(hidden=x, scaling_factor=scales, topk_idx=chosen, topk_weights=weights,
                                           num_of_experts=case.experts, handle=handle)

                received, _, got_scales, handle = dispatch()
                numbers = self.numbers(received, got_scales) if dtype == "fp8" else self.numbers(received)
                self.timed(case, "hybridep_dispatch_api", dtype, self.received(case, [(0, number) for number in numbers]), lambda: dispatch(handle))
                if dtype == "fp8":
                    continue
                result = buffer.combine(hidden=received, handle=handle)[0]
                self.timed(case, "hybridep_combine_api", dtype, self.combined(case, result, lambda token: len(case.places(token))),
                           lambda: buffer.combine(hidden=received, handle=handle))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", choices=sorted(TOKENS), default="normal", help="DeepEP's normal or low-latency kernels, or HybridEP's")
    parser.add_argument("--shape", action="append", metavar="HIDDEN/TOPK/EXPERTS", help="default: " + ", ".join(SHAPES))
    parser.add_argument("--tokens", help="tokens a rank sends, between commas (default: 1024,4096; 128 for low latency)")
    parser.add_argument("--sms", type=int, help="SMs of DeepEP's normal kernels (default: the library's)")
    parser.add_argument("--gpu", help="GPU, as moesim or its driver names it (default: the driver's name)")
    parser.add_argument("--source", default="calibration/bench/ep_kernels.py", help="who measured")
    parser.add_argument("--out", help="table to write (default: standard output)")
    arguments = parser.parse_args()
    if arguments.sms is not None and (arguments.kernels != "normal" or arguments.sms < 2 or arguments.sms % 2):
        refuse("--sms %d with --kernels %s" % (arguments.sms, arguments.kernels), "an even number with --kernels normal")
    shapes = []
    for text in arguments.shape or SHAPES:
        shape = whole_numbers(text, "/", "--shape")
        if len(shape) != 3 or shape[0] % SCALED or shape[1] > min(shape[2], VALUES):
            refuse("--shape " + text, "HIDDEN/TOPK/EXPERTS, a multiple of %d and a top-k of at most %d" % (SCALED, VALUES))
        if shape[2] % RANKS:
            refuse("%d experts on %d processes" % (shape[2], RANKS), "processes that divide the experts (--shape)")
        shapes.append(tuple(shape))
    return arguments, shapes, whole_numbers(arguments.tokens or TOKENS[arguments.kernels], ",", "--tokens")


def main():
    arguments, shapes, tokens = options()
    try:
        import torch
        import torch.distributed
        import deep_ep
    except ImportError as missing:
        leave(0, "skipped: %s" % missing)
    needed = "HybridEPBuffer" if arguments.kernels == "hybrid" else "Buffer"
    if not hasattr(deep_ep, needed):
        leave(0, "skipped: this deep_ep has no %s%s" % (needed, " (DeepEP's branch hybrid-ep has)" if needed == "HybridEPBuffer" else ""))
    if not torch.cuda.is_available():
        leave(0, "skipped: torch sees no GPU")
    if RANKS < 2:
        leave(0, "skipped: one process, expected one for each GPU (torchrun --nproc-per-node 8)")
    gpus = torch.cuda.device_count()
    if gpus > 1 and LOCAL_RANK >= gpus:
        refuse("%d processes on this node and %d GPUs" % (LOCAL_RANK + 1, gpus), "one process a GPU", RANK)
    if int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == RANKS:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if "MASTER_ADDR" not in os.environ:
        refuse("no MASTER_ADDR", "the host name of process 0 (mpirun -x MASTER_ADDR=node0)")
    os.environ.setdefault("MASTER_PORT", "29517")
    # A launcher may show each process one GPU only.
    torch.cuda.set_device(0 if gpus == 1 else LOCAL_RANK)
    arguments.gpu = arguments.gpu or torch.cuda.get_device_name()
    if arguments.sms is not None:
        deep_ep.Buffer.set_num_sms(arguments.sms)
    bench = Bench(torch, arguments)
    cases = [Case(shape, count, skewed) for shape in shapes for count in tokens for skewed in (False, True)]
    {"normal": bench.normal, "low-latency": bench.low_latency, "hybrid": bench.hybrid}[arguments.kernels](deep_ep, cases)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if bench.wrong:
        leave(1, "%d results were wrong; what was right is in the table" % bench.wrong)


main()
