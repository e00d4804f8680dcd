"""Processes that exchange objects through process 0."""
import os
import tempfile
import time
from multiprocessing.connection import Client, Listener

from . import cuda

rank, count, others, first = 0, 1, [], None


class Group:
    def rank(self):
        return rank

    def size(self):
        return count


def exchange(mine):
    """Returns what every process gave, by rank."""
    if rank > 0:
        first.send(mine)
        return first.recv()
    everyone = [mine] + [other.recv() for other in others]
    for other in others:
        other.send(everyone)
    return everyone


def init_process_group(backend):
    global rank, count, first
    assert backend == "nccl" and cuda.device is not None
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.path.join(tempfile.gettempdir(), "virtual_ep_%s_%s" % (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]))
    if rank == 0:
        listener = Listener(address, "AF_UNIX", backlog=count)
        accepted = [listener.accept() for _ in range(count - 1)]
        others.extend(connection for _, connection in sorted(((c.recv(), c) for c in accepted), key=lambda pair: pair[0]))
        return
    for _ in range(200):
        try:
            first = Client(address, "AF_UNIX")
            break
        except OSError:
            time.sleep(0.05)
    first.send(rank)


def new_group(ranks):
    assert ranks == list(range(count))
    return Group()


def meet(seconds):
    """All clocks go on from the latest one."""
    cuda.clock = max(exchange(cuda.clock)) + seconds


def all_gather_object(everyone, mine):
    everyone[:] = exchange(mine)
    cuda.clock += 1e-4 * (1 + rank)  # of the host, other on each rank


def all_reduce(tensor):
    meet(2e-5)


def barrier():
    meet(0)


def destroy_process_group():
    pass
