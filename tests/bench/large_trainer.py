"""A trainer of one's own with a large model and tiny batches, for own_memory.sh: a GPT in PyTorch with plain SGD."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/pytorch"))

import atoll.torch as atoll
import torch
from gpt_model import GPT

island = atoll.join({"layers": 24, "width": 1024, "heads": 16, "length": 8})
settings = island.settings
torch.manual_seed(island.seed)
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"])
opt = torch.optim.SGD(model.parameters(), 1e-2)
island.start(model, opt)
for step in island.steps():
    tokens = torch.randint(256, (1, settings["length"] + 1), generator=torch.Generator().manual_seed(1000 * island.part + island.position))
    loss = model(tokens[:, :-1], tokens[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    island.done(loss, samples=1)
