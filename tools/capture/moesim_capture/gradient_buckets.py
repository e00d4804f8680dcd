"""Gradient buckets of torch's DistributedDataParallel as ddp_grad_comm lines: reductions that run beside backward.

    model = DistributedDataParallel(model)
    model.register_comm_hook(BucketRecorder(recorder), reduce_bucket)

Lines stand before the backward_step that launched them and say when each reduction was launched and when it was seen to be
done. Megatron's own buckets are not DistributedDataParallel's; its reductions are recorded by the hooks as asynchronous calls.

Without a hook C++ reduces, and a hook of ours would round otherwise. ReducerWatch reads what DistributedDataParallel itself
logs of that: when its reductions began and ended, all buckets together.
"""
import time
from typing import NamedTuple, Optional

import torch.distributed as dist

from .cmd_format import DTYPE_BYTES, reduction


class BucketRecorder:
    def __init__(self, recorder, group=None, buffer_id: int = 0):
        self.recorder, self.group, self.buffer_id = recorder, group, buffer_id
        self.iteration = 0
        self._offset = 0
        self._waiting = []
        recorder.before_line.append(self._write)

    def _write(self, uid: str):
        """Writes the buckets of the operation that ends, whose line follows."""
        waiting, self._waiting = self._waiting, []
        for launch, values in waiting:
            self.recorder.write_line(reduction(self.recorder.rank, launch, values.pop("done", None), "future_callback", **values))


def reduce_bucket(state: BucketRecorder, bucket):
    """The communication hook: the mean of the bucket over the group, as DistributedDataParallel does without one."""
    recorder = state.recorder
    buffer = bucket.buffer()
    members = dist.get_world_size(state.group)
    values = {}
    if recorder.open_operation is not None and not recorder.paused:
        values.update(
            recorder.trigger(), iter=state.iteration, buffer_id=state.buffer_id, bucket_id=bucket.index(), bucket_offset=state._offset,
            bucket_numel=buffer.numel(), bucket_numel_unpadded=buffer.numel(), param_count=len(bucket.parameters()),
            grad_dtype=str(buffer.dtype), data_parallel_world_size=members)
        state._waiting.append((time.perf_counter_ns() / 1e6, values))
    state._offset = 0 if bucket.is_last() else state._offset + buffer.numel()
    state.iteration += bucket.is_last()
    buffer.div_(members)
    with recorder.inside:
        work = dist.all_reduce(buffer, group=state.group, async_op=True)

    def done(future):
        values["done"] = time.perf_counter_ns() / 1e6
        return future.value()[0]

    return work.get_future().then(done)


class Logged(NamedTuple):
    """Reductions of a module in a backward, all its buckets together."""

    launch: float  # host milliseconds of this process's clock, as the next two
    end: float
    computed: Optional[float]  # when backward's own computing was done
    comm_ms: float  # on the device
    elements: int
    dtype: str
    parameters: int


class ReducerWatch:
    """The times of DistributedDataParallel's own reductions, for those modules of a model that are one."""

    def __init__(self, model):
        self._models = [one for one in model.modules() if hasattr(one, "_get_ddp_logging_data")]
        self._before = {}

    def start(self):
        """Has every iteration timed; by default only some are."""
        for one in self._models:
            if hasattr(one, "_set_ddp_runtime_logging_sample_rate"):
                one._set_ddp_runtime_logging_sample_rate(1)
            self._before[id(one)] = self._facts(one).get("backward_comm_time_end", 0)

    def stop(self):
        for one in self._models:
            if hasattr(one, "_set_ddp_runtime_logging_sample_rate"):
                one._set_ddp_runtime_logging_sample_rate(100)  # torch's own

    @staticmethod
    def _facts(one) -> dict:
        logger = getattr(one, "logger", None)
        try:
            if hasattr(logger, "set_runtime_stats_and_log"):
                logger.set_runtime_stats_and_log()
            return one._get_ddp_logging_data()
        except Exception:  # what a log says must not end a training
            return {}

    def any(self) -> bool:
        return bool(self._models)

    def take(self):
        """Returns the reductions since the last call, by module."""
        out = []
        # torch's times are those of the clock of the day.
        offset = time.time_ns() - time.perf_counter_ns()
        for one in self._models:
            facts = self._facts(one)
            launch, end = facts.get("backward_comm_time_start", 0), facts.get("backward_comm_time_end", 0)
            if end <= self._before.get(id(one), 0) or launch <= 0:
                continue
            self._before[id(one)] = end
            dtype = next((str(p.dtype) for p in one.parameters() if p.requires_grad), "torch.float32")
            computed = facts.get("backward_compute_time_end", 0)
            elements = int(facts.get("total_parameter_size_bytes", 0)) // DTYPE_BYTES.get(dtype, 4)
            out.append(Logged((launch - offset) / 1e6, (end - offset) / 1e6,
                              (computed - offset) / 1e6 if computed else None,
                              facts.get("backward_comm_time", end - launch) / 1e6, elements, dtype,
                              int(facts.get("num_parameter_tensors", 1))))
        return out
