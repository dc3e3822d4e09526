"""What the client library costs a loop of one's own: own_overhead.py BUILD [MILLIONS]     needs PyTorch, NumPy and a C compiler

A step without synchronisation, in C and in Python with a tensor as its loss: the median of 10,000 that do nothing. A parameter of MILLIONS (16) of
float32 values copied into the arena, taken from it, and merged with alpha 0.5: the best of 25, next to memcpy of as many bytes.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
STEPS = 10_000

C_LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "atoll_trainer.h"

static double took[10000];
static int compare(const void* a, const void* b) { return *(const double*)a < *(const double*)b ? -1 : 1; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

int main(void) {
  char why[1000];
  atoll_trainer* trainer = atoll_trainer_join(NULL, "bench", "1", 1, why, sizeof why);
  uint64_t shape = 2;
  atoll_parameter parameter = {"w", &shape, 1, 0, 0};
  double loss = 1.0;
  size_t steps = 0;
  atoll_trainer_declare(trainer, &parameter, 1, NULL);
  atoll_trainer_ready(trainer, 0);
  while (steps < 10000) {
    double begin = now();
    for (int stepped = 0; !stepped;) {
      atoll_order order;
      atoll_answer answer;
      memset(&answer, 0, sizeof answer);
      if (atoll_trainer_next(trainer, -1, &order) != ATOLL_OK) return 1;
      answer.samples = answer.tokens = 1;
      answer.losses = &loss;
      answer.losses_count = order.kind == ATOLL_REPORT;
      atoll_trainer_answer(trainer, &answer);
      stepped = order.kind == ATOLL_STEP;
    }
    took[steps++] = now() - begin;
  }
  qsort(took, steps, sizeof *took, compare);
  printf("%.1f\n", 1e6 * took[steps / 2]);
  atoll_trainer_leave(trainer);
  return 0;
}
"""


def python_loop():
    import torch

    import atoll.torch

    island = atoll.torch.join()
    loss = torch.ones(())
    island.start(torch.nn.Linear(2, 2))
    took, begin = [], time.perf_counter()
    for _ in island.steps():
        island.done(loss, samples=1)
        end = time.perf_counter()
        took.append(end - begin)
        begin = end
        if len(took) == STEPS:
            break
    print(f"{1e6 * statistics.median(took):.1f}")


def real_loop(kind, width):
    """Steps of a small model, and the processor's time of the library's part alone: of what comes between a step's work and the next one's."""
    import itertools

    import torch

    import atoll.torch

    torch.set_num_threads(1)
    island = atoll.torch.join()
    model = torch.nn.Sequential(*[torch.nn.Linear(int(width), int(width)) for _ in range(4)])
    opt, xs = torch.optim.AdamW(model.parameters()), torch.randn(64, int(width))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0)
    steps, took, ours = STEPS // 10, 0.0, []

    def work():
        loss = (model(xs) - xs).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        return loss

    def ends():
        print(f"{1e6 * sum(ours) / steps:.0f} µs (median {1e6 * statistics.median(ours):.0f}), and the step itself {1e3 * took / steps:.2f} ms")
        os._exit(0)

    if kind == "old":
        island.start(model, opt, scheduler=sched)
        for step in island.steps():
            begin = time.thread_time()
            ours += [begin - done] if step else []
            loss = work()
            done = time.thread_time()
            took += done - begin
            island.done(loss, samples=64)
            if step == steps:
                ends()
    with island.train(model, opt, scheduler=sched):
        for step in island.batches(itertools.count(), samples=64):
            begin = time.thread_time()
            ours += [begin - done] if step else []
            loss = work()
            done = time.thread_time()
            took += done - begin
            island.log(loss=loss)
            if step == steps:
                ends()


def copies(millions):
    import numpy
    import torch

    import atoll.torch
    from atoll import _library as library
    from atoll import Alone

    count = millions << 20

    class Agent(Alone):
        def declare(self, parameters, description):
            return numpy.zeros(count, numpy.float32), [library.Entry(0, 0, 0, count)]

    torch.set_num_threads(1)
    model = torch.nn.ParameterList([torch.ones(count)])
    island = atoll.torch.TorchIsland(Agent({}), {})
    island.start(model)
    other = numpy.zeros(count, numpy.float32)

    ways = {
        "memcpy": lambda: numpy.copyto(other, island._arena),
        "into the arena": lambda: island._carry_out(library.Order(library.WRITE)),
        "out of it": lambda: island._carry_out(library.Order(library.MERGE)),
        "merged": lambda: island._carry_out(library.Order(library.MERGE, alpha=0.5)),
    }
    best = dict.fromkeys(ways, 1e9)
    for _ in range(25):  # in turn, so that a busy machine disturbs all alike
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - begin)
    print(f"memcpy: {4e-9 * count / best['memcpy']:.1f} GB/s")
    for name in list(ways)[1:]:
        print(f"{name}: {best['memcpy'] / best[name]:.2f} of memcpy")


def measured(command):
    from fake_agent import FakeAgent

    with FakeAgent(command, steps=STEPS) as agent:
        agent.lay_out()
        agent.link.send("plan", until_step=STEPS, publish=[], merge=[])
        agent.process.wait(600)
        return agent.text().strip()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    os.environ.update(
        ATOLL_TRAINER_LIBRARY=str(build / "libatoll_trainer.so"), PYTHONPATH=str(SOURCE / "agent/island_link/python"), OMP_NUM_THREADS="1"
    )
    sys.path[:0] = [str(SOURCE / "tests/own"), os.environ["PYTHONPATH"]]
    with tempfile.TemporaryDirectory() as folder:
        source, program = folder + "/loop.c", folder + "/loop"
        pathlib.Path(source).write_text(C_LOOP)
        include, library = f"-I{SOURCE}/agent/island_link/client", str(build / "libatoll_trainer.so")
        subprocess.run(["cc", "-O2", include, source, library, f"-Wl,-rpath,{build}", "-o", program], check=True)
        print(f"a step in C: {measured([program])} µs")
    print(f"a step in Python: {measured([sys.executable, __file__, 'loop'])} µs")
    for width in ("100", "640"):
        for kind in ("old", "new"):
            said = measured([sys.executable, __file__, "real", kind, width])
            print(f"beside the work of a step, {'island.train()' if kind == 'new' else 'island.steps()'}: {said}")
    copies(int(sys.argv[2]) if len(sys.argv) > 2 else 16)


if __name__ == "__main__":
    {"loop": python_loop, "real": real_loop}.get(sys.argv[1], lambda *given: main())(*sys.argv[2:])
