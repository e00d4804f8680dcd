"""Inside a command that fake.py started: torch's fake process group in place of the one that the command asks for, and a
recording of one rank's microbatch.

Outputs of a fake group are not filled, by version of torch. Here they are the rank's own data again, as in a FakeWorld, and
what sizes depend on is what the routing says: counts, maps and indices of the experts that the other ranks chose. The rank's
own routers are told to choose so, too, where they are modules named ...Router.
"""
import atexit
import json
import os
import resource
import runpy
import sys

import torch
import torch.distributed as dist

from .clocks import CpuTimeClock
from .fake import REFUSED_CODE, VARIABLE
from .fake_world import FakeGroup, FakeWorld
from .hooks import COLLECTIVES, POINT_TO_POINT
from .iteration import TRANSFERRED, elements_of
from .layout import Layout, members_of
from .patching import Patches, named
from .recorder import CallLog, write_json
from .routing import is_router, merge
from .training import SIZES, Recording, _found_layout

# How scripts of Megatron-LM and torchtitan say sizes.
WORDS = {
    "tp": ("tensor-model-parallel-size", "parallelism.tensor-parallel-degree"),
    "pp": ("pipeline-model-parallel-size", "parallelism.pipeline-parallel-degree"),
    "ep": ("expert-model-parallel-size", "parallelism.expert-parallel-degree"),
    "experts": ("num-experts",), "layers": ("num-layers",), "hidden": ("hidden-size",),
    "seq": ("seq-length", "training.seq-len"), "micro_batch": ("micro-batch-size", "training.local-batch-size"),
}
REFUSED = ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank")


def _said(words):
    """{option without dashes: value} of the words of a command."""
    out = {}
    for word, value in zip(words, words[1:] + [""]):
        if word.startswith("--"):
            name, assigned, own = word[2:].partition("=")
            out[name.replace("_", "-")] = own if assigned else value
    return out


class Routing:
    """The experts that every member of a dispatch group chooses: rows of counts, by layer; None where they are balanced."""

    def __init__(self, source: str, layout: Layout, experts):
        self.layout, self.experts, self.tables = layout, experts, None
        self.members = layout.ep * layout.tp
        self.layer = 0  # of the stage, of the next router or exchange
        self.used = {}  # layer -> rows
        if source == "balanced":
            return
        if os.path.isdir(source):
            content = merge(source, layout)
        else:
            with open(source, encoding="utf-8") as file:
                content = json.load(file)
        rows = content.get("tables", [content])
        first = [table for table in rows if table.get("microbatch", 0) == 0]
        self.tables = [table["num_global_tokens_per_expert"] for table in sorted(first, key=lambda t: t.get("layer", 0))]
        self.experts = len(self.tables[0][0])
        if {len(table) for table in self.tables} - {layout.ep, self.members}:
            raise SystemExit("moesim-capture: %s: found %d rows, expected one for each of %d ranks that send" % (
                source, len(self.tables[0]), self.members))

    def rows(self, layer: int, total, members: int, stage: int = 0):
        """[members, experts] of a layer of this stage whose ranks send `total` (a tensor) rows each."""
        if self.tables is None:
            share = torch.div(total, self.experts, rounding_mode="floor")
            row = share + (torch.arange(self.experts, device=total.device) < total - share * self.experts)
            out = row.repeat(members, 1)
        else:
            per_stage = max(1, len(self.tables) // self.layout.pp)
            out = torch.tensor(self.tables[min(stage * per_stage + layer % per_stage, len(self.tables) - 1)],
                               device=total.device)
            if out.shape[0] < members:  # by sequence; tensor-parallel ranks have equal shares
                out = (out // (members // out.shape[0])).repeat_interleave(members // out.shape[0], 0)
            if layer not in self.used and int(out.sum()) != members * int(total):
                raise SystemExit("moesim-capture: found a routing of %d rows of layer %d, expected the %d that %d ranks send" % (
                    int(out.sum()), layer, members * int(total), members))
        if layer not in self.used:
            self.used[layer] = out.tolist()
        return out

    @staticmethod
    def choices(row, topk: int):
        """[tokens, topk] experts, no token twice at one of them, that are chosen as often as `row` says."""
        return torch.repeat_interleave(row).view(topk, -1).t().contiguous()


class _Planned(FakeWorld):
    """What a rank is given by the others, and by its own routers."""

    def __init__(self, layout: Layout, rank: int, routing: Routing, stage: int):
        super().__init__(layout, rank)
        self.routing, self.stage, self._twins, self._routed = routing, stage, {}, False
        self.contributes(self._is_chosen, self._chosen)

    def begin_pass(self):
        self.routing.layer = 0

    def _is_chosen(self, tensor, group) -> bool:
        integers = tensor.dtype in (torch.int64, torch.int32)
        if group.size() not in (self.routing.layout.ep, self.routing.members) or group.size() == 1:
            return False
        experts = self.routing.experts
        if integers and tensor.dim() == 1 and experts is None and tensor.shape[0] % group.size() == 0:
            experts = self.routing.experts = tensor.shape[0]
        if experts is None:
            return False
        if integers and tensor.numel() == experts:
            return True
        return tensor.dim() == 2 and (integers or tensor.dtype == torch.bool and tensor.shape[1] == experts)

    def _chosen(self, tensor, group):
        routing, counts = self.routing, tensor.numel() == self.routing.experts
        total = tensor.sum() if counts or tensor.dtype == torch.bool else torch.tensor(tensor.numel(), device=tensor.device)
        layer = routing.layer - 1 if self._routed else routing.layer
        if not self._routed:
            routing.layer += 1
        rows = routing.rows(layer, total, group.size(), self.stage).clone()
        me = max(0, group.rank())
        if counts:
            if not self._routed:  # then the others send what this rank's own choice leaves of each expert's rows
                left = (rows.sum(0) - tensor.flatten()).clamp(min=0)
                others = torch.arange(group.size(), device=tensor.device).unsqueeze(1)
                others = others - (others > me).long()
                share = torch.div(left, group.size() - 1, rounding_mode="floor")
                rows = share + (others < left - share * (group.size() - 1))
            rows[me] = tensor.flatten()
            return rows.to(tensor.dtype).view((-1,) + tuple(tensor.shape[1:]))
        topk = int(total) // tensor.shape[0]
        chosen = [tensor if member == me else self._as(tensor, routing.choices(row, topk))
                  for member, row in enumerate(rows)]
        return torch.cat(chosen)

    @staticmethod
    def _as(like, indices):
        """Chosen experts in the form of `like`: a map of booleans, or indices."""
        if like.dtype != torch.bool:
            return indices.to(like.dtype)
        return torch.zeros_like(like).scatter_(1, indices, True)

    def direct(self, module, inputs, output):
        """A forward hook: the router's choice becomes the planned one; scores stay computed."""
        if not isinstance(output, (tuple, list)) or self.routing.experts is None:
            return None
        tensors = [one for one in output if isinstance(one, torch.Tensor)]
        experts = self.routing.experts
        choice = next((one for one in tensors if one.dtype == torch.bool and one.dim() == 2), None)
        if choice is None:
            choice = next((one for one in tensors if one.dtype in (torch.int64, torch.int32) and one.dim() == 2), None)
        if choice is None:
            return None
        total = choice.sum() if choice.dtype == torch.bool else torch.tensor(choice.numel(), device=choice.device)
        layer, self._routed = self.routing.layer, True
        self.routing.layer += 1
        at = self.layout.of(self.rank)
        row = self.routing.rows(layer, total, self.routing.members, self.stage)[at.tp + self.layout.tp * at.exp]
        planned = self._as(choice, self.routing.choices(row, int(total) // choice.shape[0]))

        def changed(value):
            if value is choice:
                return planned
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == choice.shape and (
                    choice.dtype == torch.bool):  # scores where the map is, zero elsewhere
                return value.sum(-1, keepdim=True) / planned.sum(-1, keepdim=True) * planned
            if isinstance(value, torch.Tensor) and not value.is_floating_point() and tuple(value.shape) == (experts,):
                return row.to(value.dtype)
            return value

        return type(output)(map(changed, output))

    def fill(self, patches: Patches):
        """Has every collective of a fake group filled, as FakeGroup does."""
        for name in (*COLLECTIVES, *POINT_TO_POINT):
            if name in vars(dist.ProcessGroup) and hasattr(FakeGroup, name):
                patches.replace(dist.ProcessGroup, name, named(self._filled(getattr(dist.ProcessGroup, name), name), name))

    def _filled(self, original, name: str):
        def method(group, *args, **kwargs):
            work = original(group, *args, **kwargs)
            twin = self._twins.get(id(group))
            if twin is None:
                twin = FakeGroup(members_of(group, self.layout.world), self.rank, self)
                self._twins[id(group)] = twin
                twin.of = group  # whose id is a key must not be freed
            with torch.no_grad():
                getattr(twin, name)(*map(_data, args))
            return work

        return method


def _data(value):
    """Tensors without their versions: who saved one for backward has not seen it change."""
    if isinstance(value, torch.Tensor):
        return value.data
    return [_data(one) for one in value] if isinstance(value, (list, tuple)) else value


class FakeRecording(Recording):
    """One rank's microbatch, of the training loop of a command; ends the command with the last iteration that is wanted."""

    MODE = "scaling"

    def __init__(self, rank):
        task, self._played = rank.task, rank
        device = next((p.device for p in rank.model.parameters()), None)
        alone = (device is None or device.type == "cpu") and torch.get_num_threads() == 1
        super().__init__(rank.model, None, task["out"], task["iterations"], task["warmup"], rank.layout.tp,
                         {name: rank.sizes.get(name) for name in SIZES}, CpuTimeClock() if alone else device, 3)
        if rank.ep_known:
            self._layout = rank.layout
        rank.model.register_forward_pre_hook(self._sees, with_kwargs=True)

    def _sees(self, module, args, kwargs):
        """The model's token ids [sequences, tokens] tell the sizes that the command does not."""
        for one in (*args, *kwargs.values()):
            if isinstance(one, torch.Tensor) and one.dim() == 2 and one.dtype in (torch.int64, torch.int32):
                for name, size in zip(("micro_batch", "seq"), one.shape):
                    self.sizes[name] = self.sizes[name] or size
                return

    def _is_trained(self, module) -> bool:
        return module is self.model or self._depth == 0 and type(module) is type(self.model)

    def _enter(self, kind):
        if self._depth == 0:
            self._played.world.begin_pass()
        super()._enter(kind)

    def _careful(self, act, *arguments):
        super()._careful(act, *arguments)
        if self._closed:  # nothing was written, and nothing will be
            sys.stdout.flush()
            os._exit(REFUSED_CODE)

    say = CallLog.say  # of every rank, not of the first alone

    def _about(self):
        self.peak = _peak_bytes()
        return ["recorded: with torch's fake process group, routing %s" % os.path.basename(self._played.task["routing"]),
                "command: " + self._played.task["command"], "peak memory: %d bytes" % self.peak]

    def _stage(self):
        return self._layout.of(self.rank).pp

    def _operations(self, cutter):
        cutter.late = 0
        self._microbatches = sum(span.kind == "forward" for span in cutter.iteration.spans)
        return cutter.one_microbatch(self._stage() == self._layout.pp - 1)

    def _write(self):
        layout = self._layout
        if layout is not None:  # tokens are exchanged where the command says
            found = _found_layout(self.world, self.rank, layout.tp, self._kept)
            if found.ep not in (1, layout.ep):
                raise ValueError("found tokens exchanged between %d ranks, expected the %d of --ep" % (found.ep, layout.ep))
        sizes, routing = self.sizes, self._played.world.routing
        sizes["experts"] = sizes["experts"] or routing.experts
        between = [call.sub.shape for one in self._kept for call in one.calls
                   if call.sub.source in TRANSFERRED and len(call.sub.shape or ()) > 1]
        if between:  # activations: what a stage sends says how many tokens it has
            sizes["hidden"] = sizes["hidden"] or between[0][-1]
            sizes["seq"] = sizes["seq"] or elements_of(between[0][:-1]) // (sizes["micro_batch"] or 1)
        super()._write()

    def _written(self):
        layout, routing = self._layout, self._played.world.routing
        names = [os.path.join(place, name) for place in self.folders for name in os.listdir(place)
                 if name.endswith("_rank%d.txt" % self.rank) or name == "rank%d.txt" % self.rank]
        tables = [{"layer": layer, "microbatch": 0, "num_global_tokens_per_expert": rows}
                  for layer, rows in sorted(routing.used.items())]
        report = {"files": names, "layout": {name: getattr(layout, name) for name in ("world", "tp", "ep", "pp")},
                  "peak_bytes": self.peak, "said": self.warnings, "microbatches": self._microbatches,
                  "failure": self._played.failure,
                  "routing": {"tables": tables, "members": len(tables[0]["num_global_tokens_per_expert"]),
                              "experts": routing.experts} if tables else None}
        write_json(self._played.task["report"], report)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a training of months is not wanted


def _peak_bytes() -> int:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Rank:
    """The rank that this process plays, from the task and the words of the command."""

    def __init__(self, task: dict, words, world):
        self.task, self.model = task, None
        self.failure = ""  # of the command, in one line
        said = _said(words)
        refused = next((name for name in REFUSED if said.get(name, "1") not in ("1", "")), None)
        if refused:
            raise SystemExit("moesim-capture: found --%s, expected a pipeline without virtual stages" % refused)
        self.sizes = {}
        for name, known in WORDS.items():
            value = next((said[word] for word in known if said.get(word, "").isdigit()), None)
            self.sizes[name] = task["sizes"].get(name) or (int(value) if value else None)
        world = task["sizes"]["world"] or world or int(os.environ.get("WORLD_SIZE", "0"))
        if not world:
            raise SystemExit("moesim-capture: found no number of ranks, expected --world N, torchrun's --nproc-per-node or "
                             "WORLD_SIZE")
        self.ep_known = self.sizes["ep"] is not None
        try:
            self.layout = Layout(world, *(self.sizes[name] or 1 for name in ("tp", "ep", "pp")))
        except ValueError as error:
            raise SystemExit("moesim-capture: %s" % error) from None
        self.rank = task["rank"]
        if self.rank >= world:
            raise SystemExit("moesim-capture: found rank %d, expected one below %d" % (self.rank, world))
        self.world = _Planned(self.layout, self.rank, Routing(task["routing"], self.layout, self.sizes["experts"]),
                              self.layout.of(self.rank).pp)
        self._patches = Patches()
        local = str(min(world, 8))
        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(world), LOCAL_RANK="0", LOCAL_WORLD_SIZE=local, GROUP_RANK="0",
                          NODE_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29500", TORCHELASTIC_RUN_ID="moesim")

    def prepare(self):
        """Replaces what makes groups, and waits for the model."""
        try:
            from torch.testing._internal.distributed.fake_pg import FakeStore
        except ImportError:
            raise SystemExit("moesim-capture: found torch %s without a fake process group, expected a newer one" %
                             torch.__version__) from None
        start, new_group = dist.init_process_group, dist.new_group

        def init_process_group(*args, **kwargs):
            start("fake", store=FakeStore(), rank=self.rank, world_size=self.layout.world)

        def make_group(*args, **kwargs):
            kwargs.update({name: None for name in ("backend", "pg_options") if name in kwargs})
            return new_group(*args[:2], **kwargs)

        def keep_objects(object_list, *args, **kwargs):  # their sizes would be arbitrary memory
            return None

        self._patches.replace(dist, "init_process_group", init_process_group)
        self._patches.replace(dist, "new_group", make_group)
        self._patches.replace(dist, "broadcast_object_list", keep_objects)
        self._patches.spread()
        self.world.fill(self._patches)
        original = torch.nn.Module.__call__

        def call(module, *args, **kwargs):
            if self.model is None and torch.is_grad_enabled() and module.training and dist.is_initialized() and any(
                    p.requires_grad for p in module.parameters()):
                torch.nn.Module.__call__ = original
                self._found(module)
                return type(module).__call__(module, *args, **kwargs)
            return original(module, *args, **kwargs)

        torch.nn.Module.__call__ = call

    def _found(self, model):
        self.model = model
        for module in model.modules():
            if is_router(module):
                module.register_forward_hook(self.world.direct)
            if isinstance(module, torch.nn.parallel.DistributedDataParallel):
                module.register_comm_hook(module.process_group, _reduced)
        FakeRecording(self)


def _reduced(group, bucket):
    """What DistributedDataParallel does without a hook, which fails on a fake group: its futures hold nothing."""
    dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _script_of(kind: str, words):
    """(how to run it, the words from the script on, ranks) of a command of python or torchrun; None for `python -c` and the
    like, which train nothing."""
    if kind == "python":
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] != "-m":
            if words[at] in ("-c", "-", "-V", "--version"):
                return None
            at += 2 if words[at] in ("-W", "-X") else 1
        words = words[at:]
        if words[:1] != ["-m"]:
            return (("path", words[0]), words, 0) if words else None
        if words[1] not in ("torch.distributed.run", "torch.distributed.launch"):
            return ("module", words[1]), words[1:], 0
        words = words[2:]
    from torch.distributed.run import get_args_parser

    known = get_args_parser().parse_args(words)
    count = known.nproc_per_node
    count = int(count) if str(count).isdigit() else max(1, torch.cuda.device_count())
    how = ("module" if known.module else "path", known.training_script)
    return how, [known.training_script] + known.training_script_args, count * int(known.nnodes.split(":")[-1])


def main(words):
    """Stands in the place of python or torchrun (words[0]) of a command."""
    task = os.environ.pop(VARIABLE, None)
    found = _script_of(words[0], words[1:])
    if found is None or task is None:
        os.execv(sys.executable, [sys.executable] + words[1:])
    (kind, name), rest, world = found
    rank = Rank(json.loads(task), rest[1:], world)
    rank.prepare()
    sys.argv = rest
    atexit.register(sys.stdout.flush)
    try:
        if kind == "module":
            sys.path[0] = os.getcwd()
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(name))
            runpy.run_path(name, run_name="__main__")
    except BaseException as error:  # what was recorded is written at exit
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            said = (str(error).splitlines() or ["no message"])[0]
            rank.failure = said if isinstance(error, SystemExit) else "%s: %s" % (type(error).__name__, said)
        raise
