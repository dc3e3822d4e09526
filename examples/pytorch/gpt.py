"""A small GPT in nanoGPT's manner on an island: gpt_alone.py with what Atoll asks for."""
import os

import atoll.torch as atoll
import numpy
import torch
from gpt_model import GPT

settings = {"layers": 2, "width": 64, "heads": 4, "length": 64, "batch": 8, "rate": 1e-3, "steps": 200, "text": os.environ.get("TEXT", __file__)}
island = atoll.join(settings, steps=settings["steps"])
settings = island.settings
torch.manual_seed(island.seed)
text = torch.from_numpy(numpy.fromfile(settings["text"], numpy.uint8).astype(numpy.int64))
windows = text[: len(text) // 65 * 65].view(-1, 65)[:, : settings["length"] + 1]
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"])
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
held_out = windows[-4:]
data = island.dataset(windows[:-4])
island.start(model, opt, evaluate=lambda: model(held_out[:, :-1], held_out[:, 1:]))

for step in island.steps():
    batch = torch.stack(data.at(island.position, settings["batch"]))
    loss = model(batch[:, :-1], batch[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    island.done(loss, samples=settings["batch"])
