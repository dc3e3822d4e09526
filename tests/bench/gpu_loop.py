"""What an island costs a PyTorch loop on a GPU: gpu_loop.py BUILD [KEY=VALUE…]     needs PyTorch with CUDA, NumPy and libzmq

A GPT of LAYERS (24) of WIDTH (1024) in bf16 autocast, BATCH (16) windows of LENGTH (512), at an agent's end of the link. In turn, REPEATS (7) times,
blocks of STEPS (40) steps: the bare loop; on the island without synchronisation; with one of FRAGMENTS (4) published every EVERY (5) steps and merged
OVERLAP (4) steps later, as Streaming DiLoCo does; with the whole model published and merged once at one step, as DiLoCo does. Prints the tokens
a second of the bare loop and the medians of the others' share of it, how long the GPU stands still for the whole model, and its memory.
DEVICE=cpu tries it without a GPU.
"""
import os
import pathlib
import statistics
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DEFAULTS = {"layers": 24, "width": 1024, "batch": 16, "length": 512, "repeats": 7, "steps": 40, "fragments": 4, "every": 5, "overlap": 4, "device": "cuda"}


def schedule(given):
    """What an agent orders: for each block of island steps what is published at which step, and merged when."""
    publish, merge, step, number = [], [], 0, 0
    steps, fragments = given["steps"], given["fragments"]
    for _ in range(given["repeats"]):
        step += steps  # without synchronisation
        for at in range(given["every"], steps - given["overlap"] + 1, given["every"]):
            number += 1
            publish.append((number, number % fragments, step + at))
            merge.append((number, number % fragments, step + at + given["overlap"]))
        step += steps
        number += 1
        for fragment in range(fragments):
            publish.append((number, fragment, step + steps // 2))
            merge.append((number, fragment, step + steps // 2))
        step += steps
    return publish, merge, step


def trainer():
    import torch

    import atoll.torch as atoll
    from gpt_model import GPT

    island = atoll.join(DEFAULTS)
    given = island.settings
    device = torch.device(given["device"])
    torch.manual_seed(1)
    text = torch.randint(256, (given["batch"], given["length"] + 1), device=device)
    model = GPT(given["layers"], given["width"], max(1, given["width"] // 64), given["length"]).to(device)
    opt = torch.optim.AdamW(model.parameters(), 1e-4)

    def settle():
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def peak():
        return torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(text[:, :-1], text[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(5):
        step()
    settle()
    alone = peak()
    island.start(model, opt)
    steps, took = iter(island.steps()), {"bare": [], "no synchronisation": [], "streaming": [], "whole model": []}
    for _ in range(given["repeats"]):
        for name, times in took.items():
            begin = settle()
            for _ in range(given["steps"]):
                if name == "bare":
                    step()
                else:
                    next(steps)
                    island.done(step(), samples=given["batch"])
            times.append(settle() - begin)
    tokens = given["steps"] * given["batch"] * given["length"]
    bare = took["bare"]
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {given['batch']} x {given['length']} tokens a step")
    print(f"bare: {tokens / statistics.median(bare):,.0f} tokens/s, {1000 * statistics.median(bare) / given['steps']:.2f} ms a step")
    for name in list(took)[1:]:
        shares = [alone / times for alone, times in zip(bare, took[name])]
        print(f"{name}: {statistics.median(shares):.4f} of it ({min(shares):.4f} to {max(shares):.4f})")
    pauses = [1000 * (whole - plain) for whole, plain in zip(took["whole model"], took["no synchronisation"])]
    print(f"a whole model, there and back: {statistics.median(pauses):.0f} ms")
    print(f"memory of the GPU at the peak: {alone:.2f} GB alone, {peak():.2f} on the island", flush=True)


def main():
    given = dict(DEFAULTS)
    for word in sys.argv[2:]:
        key, value = word.lower().split("=", 1)
        given[key] = int(value) if value.isdigit() else value
    os.environ.update(ATOLL_TRAINER_LIBRARY=str(pathlib.Path(sys.argv[1]).resolve() / "libatoll_trainer.so"),
                      PYTHONPATH=os.pathsep.join([str(SOURCE / "agent/island_link/python"), str(SOURCE / "examples/pytorch")]))
    sys.path.insert(0, str(SOURCE / "tests/own"))
    from fake_agent import FakeAgent

    publish, merge, steps = schedule(given)
    with FakeAgent([sys.executable, __file__, "trainer"], given, steps=steps) as agent:
        agent.lay_out(given["fragments"])
        agent.link.send(
            "plan", until_step=steps,
            publish=[{"round": number, "fragment": fragment, "step": step, "evaluate_local": False} for number, fragment, step in publish],
            merge=[{"round": number, "fragment": fragment, "step": step, "alpha": 0.5, "evaluate": False, "parameters": False, "save": None}
                   for number, fragment, step in merge])
        left = len(publish) + len(merge)
        while left:
            message = agent.expect("published", "merged")
            left -= 1
            if message["type"] == "published":
                agent.link.send("result", round=message["round"], fragment=message["fragment"], applied=True)
        agent.process.wait(600)
        print(agent.text().strip())


if __name__ == "__main__":
    trainer() if sys.argv[1] == "trainer" else main()
