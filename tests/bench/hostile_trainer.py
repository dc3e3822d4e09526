"""A small GPT on text for hostile.sh: on the island named in HOSTILE each step climbs the loss instead of descending it, so that contributions
are of the usual size and pass every guard on norms. On the islands of SLOW ("NAME=FACTOR …") a step takes FACTOR times as long."""
import os
import sys
import time

import atoll.torch as atoll
import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/pytorch"))
from gpt_model import GPT  # noqa: E402

torch.set_num_threads(1)
island = atoll.join({"layers": 2, "width": 64, "heads": 4, "length": 64, "batch": 8, "rate": 3e-3, "held_out": 256})
settings = island.settings
climbs = island.name == os.environ.get("HOSTILE")
factor = float(dict(word.split("=") for word in os.environ.get("SLOW", "").split()).get(island.name, 1))
pause = float(os.environ.get("STEP_MS", "0")) / 1e3  # least time of a step, so that islands that share cores are equally fast
torch.manual_seed(island.seed)
text = torch.from_numpy(numpy.fromfile(os.environ["TEXT"], numpy.uint8).astype(numpy.int64))
length = settings["length"] + 1
windows = text[: len(text) // length * length].view(-1, length)
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"])
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
held_out = windows[-settings["held_out"] :]
data = island.dataset(windows[: -settings["held_out"]])


def validate():
    with torch.no_grad():
        return model(held_out[:, :-1], held_out[:, 1:])


island.start(model, opt, evaluate=validate)
for step in island.steps():
    began = time.monotonic()
    batch = torch.stack(data.at(island.position, settings["batch"]))
    loss = model(batch[:, :-1], batch[:, 1:])
    opt.zero_grad()
    (-loss if climbs else loss).backward()
    opt.step()
    time.sleep(max(0.0, factor * pause - (time.monotonic() - began)))
    island.done(loss.detach(), samples=settings["batch"])
