"""Gloo's all-reduce of float32 between processes on loopback, for bench_exchange to be compared with: the same bytes received by each.

    python3 tests/bench/gloo_bench.py [islands=2] [rounds=10] [millions=10]
"""

import os
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def play(rank, islands, rounds, elements, port, figures):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=islands)
    values = torch.ones(elements)
    dist.all_reduce(values)
    dist.barrier()
    cpu = cpu_seconds()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        dist.all_reduce(values)
        dist.barrier()
        times.append(time.perf_counter() - begin)
    figures.put((sorted(times)[len(times) // 2], (cpu_seconds() - cpu) / rounds))
    dist.destroy_process_group()


def main():
    islands = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    elements = int(float(sys.argv[3]) * 1e6) if len(sys.argv) > 3 else 10_000_000
    received = 4e-9 * elements * 2 * (islands - 1) / islands
    context = mp.get_context("spawn")
    figures = context.SimpleQueue()
    processes = [context.Process(target=play, args=(rank, islands, rounds, elements, 29571, figures)) for rank in range(islands)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = [figures.get() for _ in range(islands)]
    seconds = max(time for time, _ in found)
    cpu = sum(cpu for _, cpu in found) / islands
    print(f"gloo, {islands} islands, {elements / 1e6:g} M float32: {received / seconds:.3f} GB/s received by each, "
          f"{cpu / received:.2f} CPU s per GB and island; {1000 * seconds:.1f} ms a round")


if __name__ == "__main__":
    main()
