"""The recorder changes no result: programs run without it, with it and without it again, on three gloo processes, and what
they return is equal bit for bit, exceptions included.

What this torch does not have (FSDP2, functional collectives, torch.compile) is skipped by asking for it, never by version.
"""

from support import ScratchTest

WORLD = 3  # no power of two: a mean of three rounds

RUN = r'''
import os, sys
import torch, torch.distributed as dist
from unchanged_programs import ALL, net, nothing, same
from moesim_capture import Recorder, record
from moesim_capture.hooks import CommunicationHooks
from moesim_capture.layout import Layout

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=%d)
world = dist.get_world_size()
for program in ALL:
    before = program(rank, world, nothing)
    if isinstance(before, str) and before.startswith("SKIP"):
        print(program.__name__, before, flush=True)
        continue
    # The recorder with operations that the program names, by one rank only, too: it needs no other rank.
    path = folder + "/" + program.__name__ + "/rank%%d.txt" %% rank
    with Recorder(path, rank) as recorder, CommunicationHooks(recorder, Layout(world, ep=world)):
        recorded = program(rank, world, recorder.operation)
    dist.barrier()
    if rank == 1:
        with Recorder(path + ".alone", rank) as recorder, CommunicationHooks(recorder, Layout(world)):
            alone = program(rank, world, recorder.operation)
    else:
        alone = program(rank, world, nothing)
    # record(), of a model that the program does not even call: all that it hooks is hooked, and put back.
    methods = {name: vars(dist.distributed_c10d.ProcessGroup)[name] for name in ("allreduce", "alltoall_base", "send")}
    with record(net(rank), out=folder + "/loop", warmup=0, iterations=1000):
        looped = program(rank, world, nothing)
    after = program(rank, world, nothing)
    put_back = all(vars(dist.distributed_c10d.ProcessGroup)[name] is method for name, method in methods.items())
    print(program.__name__, same(before, recorded), same(before, alone), same(before, looped), same(before, after), put_back,
          flush=True)
''' % WORLD

NAMES = ("every_collective", "point_to_point", "direct_calls", "waits_elsewhere", "exceptions", "autograd", "distributed",
         "by_hand", "scripted", "compiled", "functional", "sharded", "sharded2")


class Unchanged(ScratchTest):
    def test_results_are_equal_bit_for_bit(self):
        outs = [dict(line.split(" ", 1) for line in out.splitlines() if line.split(" ")[0] in NAMES)
                for out in self.run_ranks(RUN, WORLD, self.scratch)]
        for name in NAMES:
            with self.subTest(name):
                said = [out.get(name) for out in outs]
                self.assertEqual(len(set(said)), 1, said)
                if said[0] is not None and said[0].startswith("SKIP"):
                    self.skipTest("this torch has no " + said[0][5:])
                self.assertEqual(said[0], "True True True True True")

    def test_a_real_loop_recorded_by_two_lines(self):
        """Every step's loss of a loop is the same with record() around it, and with it as a call."""
        script = r'''
import os, sys
import torch, torch.distributed as dist
from moesim_capture import record
from unchanged_programs import net, nothing, trained
rank, folder, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous-" + kind, rank=rank, world_size=%d)
from torch.nn.parallel import DistributedDataParallel as Ddp
model = Ddp(net(rank), bucket_cap_mb=0.001)
if kind == "block":
    with record(model, out=folder + "/rec-block"):
        result = trained(model, rank, nothing, steps=8, scheduler=True)
elif kind == "call":
    record(model, out=folder + "/rec-call", iterations=2)
    result = trained(model, rank, nothing, steps=8, accumulate=2)
else:
    result = trained(model, rank, nothing, steps=8, scheduler=kind == "plain", accumulate=1 if kind == "plain" else 2)
torch.save(result, folder + "/%%s%%d.pt" %% (kind, rank))
''' % WORLD
        for kind in ("plain", "block", "plain2", "call"):
            self.run_ranks(script, WORLD, self.scratch, kind)
        import torch

        for one, other in (("plain", "block"), ("plain2", "call")):
            for rank in range(WORLD):
                a, b = (torch.load(self.path("%s%d.pt" % (kind, rank))) for kind in (one, other))
                flat = [x for part in a for x in part], [x for part in b for x in part]
                self.assertEqual(len(flat[0]), len(flat[1]))
                self.assertTrue(all(torch.equal(x, y) for x, y in zip(*flat)), (one, other, rank))
