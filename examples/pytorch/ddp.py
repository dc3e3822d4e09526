"""A GPT on an island of several processes: DistributedDataParallel under torchrun. Every rank runs this; rank 0 talks to the agent.

    torchrun --standalone --nproc_per_node 2 ddp.py          alone; on an island: --trainer ddp='torchrun --standalone --nproc-per-node 2 /srv/ddp.py'
"""
import os

import atoll.torch as atoll
import numpy
import torch
from gpt_model import GPT
from torch.nn.parallel import DistributedDataParallel

settings = {"layers": 1, "width": 32, "heads": 2, "length": 32, "batch": 8, "rate": 1e-3, "text": os.environ.get("TEXT", __file__)}
island = atoll.join(settings, steps=40)
settings = island.settings
device = torch.device("cuda", island.rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(island.seed)
text = torch.from_numpy(numpy.fromfile(settings["text"], numpy.uint8).astype(numpy.int64))
windows = text.unfold(0, settings["length"] + 1, settings["length"])
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"]).to(device)
ranks = DistributedDataParallel(model) if island.ranks > 1 else model
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
held_out = windows[-4:].to(device)
loader = island.loader(windows[:-4], batch_size=settings["batch"] // island.ranks)  # of each rank

with island.train(ranks, opt, evaluate=lambda: model(held_out[:, :-1], held_out[:, 1:])):
    for batch in loader:
        batch = batch.to(device)
        loss = ranks(batch[:, :-1], batch[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)
