"""moesim-capture: from a training script to a recording that moesim replays (docs/replay.md).

Importing this needs no torch; what works with tensors and groups is imported where it is used.
"""
from .recorder import VERSION, Recorder, active, communication, operation

__version__ = VERSION
__all__ = ["Recorder", "active", "communication", "operation", "record"]


def record(*args, **kwargs):
    """Records the training loop that follows; see training.record, whose arguments these are."""
    from .training import record as start

    return start(*args, **kwargs)
