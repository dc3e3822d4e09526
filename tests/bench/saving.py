"""How long a checkpoint stops a loop: saving.py BUILD [MILLIONS ...]     needs PyTorch; writes 12 bytes a parameter to $TMPDIR

A model of MILLIONS (10 and 100) of parameters with AdamW and one thread. The loop's longest stop between two steps in a round without a save, with one that is
written before the loop goes on, and with one that is written beside the steps; how long the steps take meanwhile; the processor's time of all.
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
FIRST, STEPS = 3, 12  # the round is over after the first few


def loop(millions):
    import torch

    import atoll.torch

    torch.set_num_threads(1)
    island = atoll.torch.join()
    width = int((float(millions) * 1e6 / 8) ** 0.5)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(8)])
    opt, xs = torch.optim.AdamW(model.parameters(), fused=True), torch.randn(4, width)
    island.start(model, opt)
    stops, steps, done = [], [], 0.0
    for step in island.steps():
        begin = time.perf_counter()
        if step:
            stops.append(begin - done)
        opt.zero_grad(set_to_none=False)
        model(xs).pow(2).mean().backward()
        opt.step()
        done = time.perf_counter()
        steps.append(done - begin)
        island.done(samples=4)
    used = time.process_time()
    print(f"{1e3 * max(stops):.0f} {1e3 * statistics.median(steps[1:FIRST]):.0f} {1e3 * statistics.median(steps[FIRST:]):.0f} {used:.1f}")


def measured(millions, save, beside):
    from fake_agent import FakeAgent

    with tempfile.TemporaryDirectory() as folder, FakeAgent([sys.executable, __file__, "loop", millions], beside=beside, steps=STEPS) as agent:
        agent.lay_out()
        publish = [dict(round=number, fragment=0, step=step, evaluate_local=False) for number, step in ((1, FIRST), (2, STEPS))]
        merge = dict(round=1, fragment=0, step=FIRST, alpha=0.0, evaluate=False, parameters=False, save=folder + "/trainer" if save else None)
        agent.link.send("plan", until_step=STEPS, publish=publish, merge=[merge])
        agent.expect("published")
        agent.link.send("result", round=1, fragment=0, applied=True)
        begin = time.perf_counter()
        due, took = {"merged", "published"} | ({"saved"} if save and beside else set()), 0.0
        while due:
            due.remove(kind := agent.expect(*due)["type"])
            took = time.perf_counter() - begin if kind != "published" else took
        agent.link.send("stop", why="over")
        agent.process.wait(600)
        stop, before, after, used = agent.text().split()[-4:]
        return f"the loop stops for {stop} ms; steps of {before} ms before, {after} ms after; {used} s of CPU; saved after {took:.2f} s"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    os.environ.update(
        ATOLL_TRAINER_LIBRARY=str(build / "libatoll_trainer.so"), PYTHONPATH=str(SOURCE / "agent/island_link/python"), OMP_NUM_THREADS="1"
    )
    sys.path[:0] = [str(SOURCE / "tests/own"), os.environ["PYTHONPATH"]]
    print(subprocess.run(["uname", "-mr"], capture_output=True, text=True).stdout.strip(), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for millions in sys.argv[2:] or ("10", "100"):
        for what, save, beside in (("no save", False, False), ("before the loop goes on", True, False), ("beside the steps", True, True)):
            print(f"{millions} million, {what}: {measured(millions, save, beside)}", flush=True)


if __name__ == "__main__":
    loop(*sys.argv[2:]) if sys.argv[1] == "loop" else main()
