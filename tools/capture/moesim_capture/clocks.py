"""Ways to tell how long something took: the host's clock for a CPU, CUDA events for a GPU, and the time that a process had a
core for one that plays ranks on a CPU.

A mark is a moment; `end` waits until everything before it has happened, so marks can be compared afterwards. On a GPU
nothing but the start and the end of an operation waits for the device: calls in between are marked by events, and
their moments are put on the host's clock later. So the recorded program launches ahead as it would without a recorder.
"""
import time


class HostClock:
    kind = "host clock"
    on_host = True
    begin = mark = staticmethod(time.perf_counter_ns)
    ahead = 0  # nanoseconds of the host's clock before this one

    def end(self, begin):
        """(mark, host milliseconds) of now."""
        now = self.mark()
        return now, (now + self.ahead) / 1e6

    def between(self, first, second) -> float:
        """Milliseconds from one mark to another."""
        return (second - first) / 1e6


class CpuTimeClock(HostClock):
    """Counts only while this process, of one thread, has a core: what others do on the machine meanwhile is left out. Its
    moments lie near the host's clock, but go on more slowly."""

    kind = "CPU time of the process"
    begin = mark = staticmethod(time.process_time_ns)

    def __init__(self):
        self.ahead = time.perf_counter_ns() - time.process_time_ns()


class CudaClock:
    kind = "CUDA events"
    on_host = False

    def __init__(self, device=None):
        import torch

        self._cuda = torch.cuda
        self._device = device

    def _event(self):
        # A new one each time: a transfer in flight keeps its own beyond the operation that launched it.
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def begin(self):
        self._cuda.synchronize(self._device)
        return self._event()

    mark = _event

    def end(self, begin):
        mark = self._event()
        self._cuda.synchronize(self._device)
        return mark, time.perf_counter_ns() / 1e6

    def between(self, first, second) -> float:
        return first.elapsed_time(second)


def clock_for(device):
    """The clock of a torch device, a name such as "cuda:1", or None for the CPU; a clock is its own."""
    if hasattr(device, "between"):
        return device
    return CudaClock(device) if device is not None and str(device).startswith("cuda") else HostClock()
