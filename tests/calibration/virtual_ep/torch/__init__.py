"""Stands in for the calls of PyTorch that calibration/bench/ep_kernels.py makes: tensors as lists, a GPU whose clock only calls move, and
collectives over a socket. VIRTUAL_EP says what differs: "without=torch" (or deep_ep, HybridEPBuffer, gpu), "wrong=normal_combine", "gpus=4"."""
import math
import os

said = dict(part.split("=") for part in os.environ.get("VIRTUAL_EP", "").split(",") if part)
if said.get("without") == "torch":
    raise ModuleNotFoundError("No module named 'torch'")

bfloat16, float32, float8_e4m3fn, int64, int8, uint8 = "bfloat16", "float32", "float8_e4m3fn", "int64", "int8", "uint8"


class Tensor:
    def __init__(self, shape, data, dtype):
        self.shape, self.data, self.dtype = tuple(shape), data, dtype

    def __len__(self):
        return self.shape[0]

    def inner(self):
        return math.prod(self.shape[1:])

    def __getitem__(self, at):
        if isinstance(at, slice):
            count = len(range(*at.indices(self.shape[0])))
            return Tensor((count,) + self.shape[1:], self.data[:count * self.inner()], self.dtype)
        return Tensor(self.shape[1:], self.data[at * self.inner():(at + 1) * self.inner()], self.dtype)

    def rows(self):
        width = self.shape[-1]
        return [self.data[i:i + width] for i in range(0, len(self.data), width)]

    def tolist(self):
        return list(self.data) if len(self.shape) == 1 else [self[i].tolist() for i in range(self.shape[0])]

    def to(self, dtype):
        return Tensor(self.shape, self.data, dtype)

    def float(self):
        return self.to(float32)

    def clone(self):
        return Tensor(self.shape, list(self.data), self.dtype)

    def contiguous(self):
        return self

    def unsqueeze(self, dim):
        assert dim == 1 and len(self.shape) == 1
        return Tensor(self.shape + (1,), self.data, self.dtype)

    def expand(self, count, columns):
        assert self.shape == (count, 1)
        return Tensor((count, columns), [value for value in self.data for _ in range(columns)], self.dtype)

    def amin(self, dim):
        return Tensor(self.shape[:-1], [min(row) for row in self.rows()], self.dtype)

    def amax(self, dim):
        return Tensor(self.shape[:-1], [max(row) for row in self.rows()], self.dtype)

    def zero_(self):
        cuda.clock += self.shape[0] / (3e12 - 2e11 * cuda.device)  # memory of the GPUs is not alike
        if self.shape[0] > cuda.L2_BYTES:
            cuda.cached.clear()
        return self


def tensor(values, dtype, device):
    if values and isinstance(values[0], list):
        return Tensor((len(values), len(values[0])), [value for row in values for value in row], dtype)
    return Tensor((len(values),), list(values), dtype)


def ones(shape, dtype, device):
    shape = (shape,) if isinstance(shape, int) else shape
    return Tensor(shape, [1.0] * math.prod(shape), dtype)


def empty(size, dtype, device):
    return Tensor((size,), None, dtype)


from . import cuda, distributed  # noqa: E402
