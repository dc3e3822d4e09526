"""A small GPT in nanoGPT's manner, trained alone. gpt.py is the same program on an island; their difference is what Atoll asks for."""
import os

import numpy
import torch
from gpt_model import GPT

settings = {"layers": 2, "width": 64, "heads": 4, "length": 64, "batch": 8, "rate": 1e-3, "steps": 200, "text": os.environ.get("TEXT", __file__)}
torch.manual_seed(1)
text = torch.from_numpy(numpy.fromfile(settings["text"], numpy.uint8).astype(numpy.int64))
windows = text[: len(text) // 65 * 65].view(-1, 65)[:, : settings["length"] + 1]
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"])
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
held_out = windows[-4:]

for step in range(settings["steps"]):
    batch = torch.stack([windows[(step * settings["batch"] + i) % (len(windows) - 4)] for i in range(settings["batch"])])
    loss = model(batch[:, :-1], batch[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
