"""Operations without a change to the program: functions that are called through their module become operations.

    with Recorder(path, rank) as recorder, CommunicationHooks(recorder, layout), Operations(recorder, MEGATRON):
        pretrain(...)
"""
import functools
import importlib

from .patching import Patches

# Functions of Megatron-LM (core 0.5 and later) by the operation that they are. Transfers between stages need no entry: the
# hooks name them. Not run here, for lack of a GPU: missing functions are reported, not guessed.
MEGATRON = {
    "megatron.core.pipeline_parallel.schedules:forward_step": ("forward_step", "None"),
    "megatron.core.pipeline_parallel.schedules:backward_step": ("backward_step", "None"),
    "megatron.core.distributed.finalize_model_grads:finalize_model_grads": ("dp_allreduce", "dp"),
    "megatron.core.optimizer.optimizer:MegatronOptimizer.step": ("optimizer_step", "None"),
    "megatron.core.optimizer.optimizer:MixedPrecisionOptimizer.step": ("optimizer_step", "None"),
    "megatron.core.optimizer.optimizer:ChainedOptimizer.step": ("optimizer_step", "None"),
}


class Operations:
    """Wraps functions, named "module:function" or "module:Class.method", while its `with` block is open.

    A wrapped function that runs inside another operation (an optimizer in a chain of them) is part of it. Names that do not
    exist are listed in `missing`; none found at all is an error.
    """

    def __init__(self, recorder, functions: dict):
        self.recorder, self.functions = recorder, dict(functions)
        self.missing = []
        self._patches = Patches()

    def __enter__(self):
        for place, (name, group) in self.functions.items():
            module_name, _, path = place.partition(":")
            try:
                owner = importlib.import_module(module_name)
                for part in path.split(".")[:-1]:
                    owner = getattr(owner, part)
                last = path.split(".")[-1]
                # A method that a class inherits is wrapped where it is defined.
                original = vars(owner)[last] if isinstance(owner, type) else getattr(owner, last)
            except (ImportError, AttributeError, KeyError):
                self.missing.append(place)
                continue
            self._patches.replace(owner, last, self._wrapped(original, name, group))
        if len(self.missing) == len(self.functions):
            self._patches.restore()
            raise LookupError("found none of %s, expected the program's own functions" % ", ".join(self.functions))
        self._patches.spread()
        return self

    def __exit__(self, *unused):
        self._patches.restore()

    def _wrapped(self, original, name: str, group: str):
        recorder = self.recorder

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            if recorder.open_operation is not None:
                return original(*args, **kwargs)
            with recorder.operation(name, group=group):
                return original(*args, **kwargs)

        return wrapper
