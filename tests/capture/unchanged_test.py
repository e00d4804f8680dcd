"""The recorder changes no result: programs run without it, with it and without it again, on three gloo processes, and what
they return is equal bit for bit, exceptions included.

What this torch does not have (FSDP2, functional collectives, torch.compile) is skipped by asking for it, never by version.
"""

from support import ScratchTest
from unchanged_programs import ALL

WORLD = 3  # no power of two: a mean of three rounds

RUN = r'''
import contextlib, os, sys
import torch, torch.distributed as dist
import unchanged_programs
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
    # record(), of a model that the program does not even call: all that it hooks is hooked, and put back. Within it also of
    # those that `distributed` trains.
    methods = {name: vars(dist.distributed_c10d.ProcessGroup)[name] for name in ("allreduce", "alltoall_base", "send")}
    unchanged_programs.loop = lambda model: record(model, out=folder + "/trained", warmup=1, iterations=2)
    with record(net(rank), out=folder + "/loop", warmup=0, iterations=1000):
        looped = program(rank, world, nothing)
    unchanged_programs.loop = contextlib.nullcontext
    after = program(rank, world, nothing)
    put_back = all(vars(dist.distributed_c10d.ProcessGroup)[name] is method for name, method in methods.items())
    print(program.__name__, same(before, recorded), same(before, alone), same(before, looped), same(before, after), put_back,
          flush=True)
''' % WORLD

NAMES = [program.__name__ for program in ALL]


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
