"""LoRA: fine-tunes the GPT that gpt.py trained and `atoll export` wrote. The islands share the adapters alone; a digest of the frozen rest
is compared, so that nobody trains on another base.
"""
import os

import atoll.torch as atoll
import numpy
import torch
from gpt_model import GPT


class Adapted(torch.nn.Module):
    """A frozen linear layer with two thin trainable ones beside it."""

    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.lora_a = torch.nn.Parameter(torch.randn(rank, linear.in_features) / rank)
        self.lora_b = torch.nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_a.t() @ self.lora_b.t()


settings = {"layers": 2, "width": 64, "heads": 4, "length": 64, "rank": 4, "batch": 8, "rate": 1e-2, "base": os.environ.get("BASE", "model.safetensors")}
island = atoll.join(settings, steps=40)
settings = island.settings
torch.manual_seed(island.seed)
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"])
island.base(model, settings["base"], digest=settings.get("digest"))  # of which the run file may have the digest
for block in model.h:
    block.attention, block.project = Adapted(block.attention, settings["rank"]), Adapted(block.project, settings["rank"])
adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
opt = torch.optim.AdamW(adapters, settings["rate"])
text = torch.from_numpy(numpy.fromfile(settings.get("text", os.path.abspath(__file__)), numpy.uint8).astype(numpy.int64))
windows = text.unfold(0, settings["length"] + 1, settings["length"])
held_out, loader = windows[-4:], island.loader(windows[:-4], batch_size=settings["batch"])

with island.train(model, opt, evaluate=lambda: model(held_out[:, :-1], held_out[:, 1:])):
    for batch in loader:
        loss = model(batch[:, :-1], batch[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)
