"""One virtual GPU: its clock, and the kernels whose input lies in its L2."""
from . import said

L2_BYTES = 50 << 20
clock = 0.0
cached = set()
device = None


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = clock

    def elapsed_time(self, later):
        return (later.at - self.at) * 1e3


def is_available():
    return said.get("without") != "gpu"


def device_count():
    return int(said.get("gpus", 4))


def set_device(number):
    global device
    assert number < device_count()
    device = number


def get_device_name():
    return "NVIDIA H200"


def synchronize():
    pass
