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
loader = island.loader(windows[:-4], batch_size=settings["batch"])

with island.train(model, opt, evaluate=lambda: model(held_out[:, :-1], held_out[:, 1:])):
    for batch in loader:
        loss = model(batch[:, :-1], batch[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)
        if island.step % 50 == 0:
            print(f"step {island.step}: loss {loss.item():.3f}")
