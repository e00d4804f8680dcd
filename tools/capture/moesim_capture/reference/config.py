"""The reference job: sizes of the model, the parallel plan, the dispatcher."""
from dataclasses import asdict, dataclass

from ..layout import Layout

DISPATCHERS = ("allgather", "alltoall")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class JobConfig:
    world: int = 4
    ep: int = 4
    pp: int = 1
    tp: int = 1  # ranks that share a sequence, attention and every expert
    dispatcher: str = "alltoall"
    experts: int = 8
    topk: int = 2
    hidden: int = 512
    ffn: int = 1024
    heads: int = 8
    layers: int = 2
    vocab: int = 2048
    seq: int = 512
    micro_batch: int = 1
    microbatches: int = 4
    grouped: bool = False  # experts as one batched product instead of one after the other
    routing: str = "balanced"  # or zipf:S, or a dispatching file with topk_indices
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    seed: int = 1

    def __post_init__(self):
        def need(right, found, expected):
            if not right:
                raise ValueError("found %s, expected %s" % (found, expected))

        for name in ("experts", "topk", "hidden", "ffn", "heads", "layers", "vocab", "seq", "micro_batch",
                     "microbatches", "threads"):
            need(getattr(self, name) >= 1, "%s %d" % (name, getattr(self, name)), "at least 1")
        layout = self.layout  # checks world, tp, ep and pp
        need(self.dispatcher in DISPATCHERS, "dispatcher %s" % self.dispatcher, " or ".join(DISPATCHERS))
        need(self.dtype in DTYPES, "dtype %s" % self.dtype, ", ".join(DTYPES))
        need(self.device == "cpu" or self.device.split(":")[0] == "cuda", "device %s" % self.device, "cpu or cuda")
        need(self.experts % layout.ep == 0, "%d experts" % self.experts, "a multiple of ep %d" % layout.ep)
        need(self.topk <= self.experts, "topk %d" % self.topk, "at most the %d experts" % self.experts)
        need(self.hidden % self.heads == 0, "hidden %d" % self.hidden, "a multiple of the %d heads" % self.heads)
        for name in ("heads", "ffn", "seq"):
            need(getattr(self, name) % layout.tp == 0, "%s %d" % (name, getattr(self, name)), "a multiple of tp %d" % layout.tp)
        need(self.layers % layout.pp == 0, "%d layers" % self.layers, "a multiple of pp %d" % layout.pp)

    @property
    def layout(self) -> Layout:
        return Layout(world=self.world, tp=self.tp, ep=self.ep, pp=self.pp)

    @property
    def tokens(self) -> int:
        """Of a tensor-parallel group; each of its ranks holds its share of every sequence."""
        return self.seq * self.micro_batch

    def about(self) -> str:
        """One line for the header of a recording."""
        return "job: " + ", ".join("%s %s" % item for item in asdict(self).items())
