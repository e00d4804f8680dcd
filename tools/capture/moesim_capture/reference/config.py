"""The reference job: sizes of the model, the parallel plan, the dispatcher."""
from dataclasses import asdict, dataclass, field

from ..layout import Layout

DISPATCHERS = ("allgather", "alltoall")
DTYPES = ("float32", "bfloat16", "float16")


def option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class JobConfig:
    world: int = option(4, "ranks")
    ep: int = option(4, "expert-parallel size")
    pp: int = option(1, "pipeline stages")
    tp: int = option(1, "tensor-parallel size")  # ranks that share a sequence, attention and every expert
    dispatcher: str = option("alltoall", "allgather or alltoall")
    experts: int = option(8, "experts of a layer")
    topk: int = option(2, "experts of a token")
    hidden: int = option(512, "hidden size")
    ffn: int = option(1024, "hidden size of an expert")
    heads: int = option(8, "attention heads")
    layers: int = option(2, "layers, all stages")
    vocab: int = option(2048, "vocabulary")
    seq: int = option(512, "tokens of a sequence")
    micro_batch: int = option(1, "sequences of a microbatch")
    microbatches: int = option(4, "of an iteration (realistic)")
    grouped: bool = option(False, "experts in one batched product instead of a loop")
    routing: str = option("balanced", "balanced, zipf:S or a dispatching file")
    dtype: str = option("float32", "float32, bfloat16, float16")
    device: str = option("cpu", "cpu or cuda")
    threads: int = option(1, "of a process")
    seed: int = option(1, "of weights, data and drawn routing")

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
