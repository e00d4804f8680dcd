"""Stands in for DeepEP and HybridEP: rows really go from process to process, and calls take the time that seconds() plants."""
import random

import torch
from torch import Tensor, cuda, distributed, said

if said.get("without") == "deep_ep":
    raise ModuleNotFoundError("No module named 'deep_ep'")

BYTES = {torch.bfloat16: 2.0, torch.float8_e4m3fn: 1.03125, torch.uint8: 1.03125}
BASE = {"normal_dispatch": 30e-6, "normal_combine": 40e-6, "lowlatency_dispatch": 20e-6, "lowlatency_combine": 25e-6,
        "hybrid_dispatch": 50e-6, "hybrid_combine": 60e-6}
calls = {}


def seconds(kernel, tokens, hidden, dtype):
    """The planted time of a call that is warm, with a cold L2."""
    return BASE[kernel] + tokens * hidden * BYTES[dtype] / 1e9


def spend(kernel, tokens, hidden, dtype):
    number = calls[kernel] = calls.get(kernel, 0) + 1
    planted = seconds(kernel, tokens, hidden, dtype) * random.Random(number).gauss(1, 0.01)
    # First calls compile and connect; one of ten is disturbed; a warm L2 is twice as fast.
    slow = 20 if number <= 5 else 5 if number % 10 == 0 else 1
    distributed.meet(planted * slow * (0.5 if kernel in cuda.cached else 1))
    cuda.cached.add(kernel)


def finish(kernel, result):
    if said.get("wrong") == kernel and distributed.rank == 2:
        result.data[-1] += 1
    return result


def rows_of(x):
    return list(zip(x[0].rows(), x[1].rows())) if isinstance(x, tuple) else x.rows()


def packed(rows, like):
    """Rows as a tensor like another, or as one with its scales."""
    if isinstance(like, tuple):
        return tuple(packed([row[i] for row in rows], part) for i, part in enumerate(like))
    return Tensor((len(rows), like.shape[-1]), [value for row in rows for value in row], like.dtype)


def sent_here(x, goes):
    """Returns (rank, token, row) of all rows for this rank; goes: [tokens][ranks]."""
    outgoing = [[(token, row) for token, row in enumerate(rows_of(x)) if goes[token][to]] for to in range(distributed.count)]
    return [(rank, token, row) for rank, all_of in enumerate(distributed.exchange(outgoing)) for token, row in all_of[distributed.rank]]


def sent_back(x, origins, tokens):
    outgoing = [[] for _ in range(distributed.count)]
    for (rank, token), row in zip(origins, x.rows()):
        outgoing[rank].append((token, row))
    sums = [[0.0] * x.shape[-1] for _ in range(tokens)]
    for all_of in distributed.exchange(outgoing):
        for token, row in all_of[distributed.rank]:
            sums[token] = [a + b for a, b in zip(sums[token], row)]
    return packed(sums, x)


def ranks_of(chosen, experts):
    return [[any(e * distributed.count // experts == to for e in row) for to in range(distributed.count)] for row in chosen.tolist()]


class Config:
    def get_nvl_buffer_size_hint(self, bytes_of_row, ranks):
        return bytes_of_row * ranks

    def get_rdma_buffer_size_hint(self, bytes_of_row, ranks):
        raise RuntimeError("built without NVSHMEM")


class Buffer:
    num_sms = 20

    def __init__(self, group, num_nvl_bytes=0, num_rdma_bytes=0, low_latency_mode=False, num_qps_per_rank=12):
        assert group.size() == distributed.count and (num_rdma_bytes > 0) == low_latency_mode != (num_nvl_bytes > 0)
        self.most, self.qps, self.clean = num_rdma_bytes, num_qps_per_rank, None

    @staticmethod
    def set_num_sms(number):
        Buffer.num_sms = number

    @staticmethod
    def get_dispatch_config(ranks):
        return Config()

    get_combine_config = get_dispatch_config

    def get_dispatch_layout(self, topk_idx, num_experts):
        goes = ranks_of(topk_idx, num_experts)
        return "to_rank", None, "to_expert", goes, None

    def dispatch(self, x, handle=None, num_tokens_per_rank=None, num_tokens_per_rdma_rank=None, is_token_in_rank=None,
                 num_tokens_per_expert=None):
        if handle is None:
            assert num_tokens_per_rank == "to_rank" and num_tokens_per_expert == "to_expert"
        goes = handle[1] if handle else is_token_in_rank
        arrived = sent_here(x, goes)
        plain = x[0] if isinstance(x, tuple) else x
        spend("normal_dispatch", len(plain), plain.shape[1], plain.dtype)
        received = packed([row for _, _, row in arrived], x)
        finish("normal_dispatch", received[0] if isinstance(received, tuple) else received)
        return received, None, None, None, ([(rank, token) for rank, token, _ in arrived], goes), None

    def combine(self, x, handle):
        result = sent_back(x, handle[0], len(handle[1]))
        spend("normal_combine", len(result), x.shape[1], x.dtype)
        return finish("normal_combine", result), None, None

    @staticmethod
    def get_low_latency_rdma_size_hint(tokens, hidden, ranks, experts):
        return tokens * hidden * ranks * experts

    def clean_low_latency_buffer(self, tokens, hidden, experts):
        assert tokens * hidden * distributed.count * experts <= self.most and experts <= self.qps * distributed.count
        self.clean = (tokens, hidden, experts)

    def low_latency_dispatch(self, x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts, use_fp8=True):
        assert self.clean == (num_max_dispatch_tokens_per_rank, x.shape[1], num_experts)
        here, most = num_experts // distributed.count, num_max_dispatch_tokens_per_rank * distributed.count
        scales = Tensor((len(x), x.shape[1] // 128), [row[0] / 448 for row in x.rows() for _ in range(x.shape[1] // 128)], torch.float32)
        full = Tensor(x.shape, [448.0] * len(x.data), torch.float8_e4m3fn)
        given = (full, scales) if use_fp8 else x
        chosen = topk_idx.tolist()
        copies = [[((expert, token), row) for token, row in enumerate(rows_of(given)) for expert in chosen[token] if expert // here == to]
                  for to in range(distributed.count)]
        arrived = [[] for _ in range(here)]
        for rank, all_of in enumerate(distributed.exchange(copies)):
            for (expert, token), row in all_of[distributed.rank]:
                arrived[expert % here].append((rank, token, row))
        spend("lowlatency_dispatch", len(x), x.shape[1], torch.float8_e4m3fn if use_fp8 else x.dtype)
        parts = []
        for i, part in enumerate(given if use_fp8 else (given,)):
            data = []
            for came in arrived:
                rows = [row[i] if use_fp8 else row for _, _, row in came]
                data += [value for row in rows for value in row] + [float("nan")] * ((most - len(rows)) * part.shape[1])
            parts.append(Tensor((here, most, part.shape[1]), data, part.dtype))
        counts = Tensor((here,), [len(came) for came in arrived], torch.int64)
        return tuple(parts) if use_fp8 else parts[0], counts, arrived, None, None

    def low_latency_combine(self, x, topk_idx, topk_weights, handle):
        assert set(topk_weights.data) == {1.0}
        rows = [row for expert, came in enumerate(handle) for row in x[expert].rows()[:len(came)]]
        origins = [(rank, token) for came in handle for rank, token, _ in came]
        result = sent_back(packed(rows, x), origins, len(topk_idx))
        spend("lowlatency_combine", len(topk_idx), x.shape[-1], x.dtype)
        return finish("lowlatency_combine", result), None, None


class HybridEPBuffer:
    def __init__(self, group, hidden_dim, max_num_of_tokens_per_rank, num_local_experts, use_fp8):
        self.sizes = (hidden_dim, max_num_of_tokens_per_rank, num_local_experts * group.size())
        self.fp8 = use_fp8

    def dispatch(self, hidden, scaling_factor, topk_idx, topk_weights, num_of_experts, handle=None):
        assert (hidden.shape[1], len(hidden), num_of_experts) == self.sizes and (hidden.dtype == torch.uint8) == self.fp8
        given = (hidden, scaling_factor) if self.fp8 else hidden
        arrived = sent_here(given, ranks_of(topk_idx, num_of_experts))
        spend("hybrid_dispatch", len(hidden), hidden.shape[1], hidden.dtype)
        received = packed([row for _, _, row in arrived], given)
        received, scales = received if self.fp8 else (received, None)
        return finish("hybrid_dispatch", received), None, scales, ([(rank, token) for rank, token, _ in arrived], len(hidden))

    def combine(self, hidden, probs=None, handle=None):
        result = sent_back(hidden, *handle)
        spend("hybrid_combine", len(result), hidden.shape[1], hidden.dtype)
        return finish("hybrid_combine", result), None


if said.get("without") == "HybridEPBuffer":
    del HybridEPBuffer
