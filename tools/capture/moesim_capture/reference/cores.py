"""Where the wall time of a process went, as Linux keeps it for every thread: on a core, waiting for one while others had it,
or blocked (in a collective, mostly)."""
import os


def allowed():
    """Cores that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def take_one(rank: int, world: int):
    """Gives this process, and the threads that it starts, a core of its own where there are enough: a rank's device."""
    cores = allowed()
    if 1 < world <= len(cores) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores[rank]})


def times():
    """Milliseconds so far: {"on_core", "waiting"} of the main thread and {"others_on_core", "others_waiting"} of all others;
    None where the kernel does not say."""
    out = {"on_core": 0.0, "waiting": 0.0, "others_on_core": 0.0, "others_waiting": 0.0}
    try:
        threads = os.listdir("/proc/self/task")
        for thread in threads:
            try:
                with open("/proc/self/task/%s/schedstat" % thread) as file:
                    on_core, waiting = map(int, file.read().split()[:2])
            except FileNotFoundError:
                if int(thread) == os.getpid():
                    return None  # a kernel without it
                continue  # a thread that has ended meanwhile
            kind = "" if int(thread) == os.getpid() else "others_"
            out[kind + "on_core"] += on_core / 1e6
            out[kind + "waiting"] += waiting / 1e6
    except (OSError, ValueError):
        return None
    return out


def between(first, second):
    """Milliseconds between two moments of times(); None where one is."""
    return None if first is None or second is None else {key: second[key] - first[key] for key in first}
