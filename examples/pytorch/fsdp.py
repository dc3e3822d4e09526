"""A GPT on an island of several processes that share it: FSDP2 (fully_shard) under torchrun. Every rank copies its own shards.

    torchrun --standalone --nproc_per_node 2 fsdp.py          alone; on an island: --trainer fsdp='torchrun --standalone --nproc-per-node 2 /srv/fsdp.py'
PyTorch 2.4 or newer; with CUDA a GPU for each rank, else the processor.
"""
import os

import atoll.torch as atoll
import cpu_streams  # noqa: F401
import numpy
import torch
from gpt_model import GPT
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before PyTorch 2.6
    from torch.distributed._composable.fsdp import fully_shard

settings = {"layers": 1, "width": 32, "heads": 2, "length": 32, "batch": 8, "rate": 1e-3, "text": os.environ.get("TEXT", __file__)}
island = atoll.join(settings, steps=40)
settings = island.settings
device = torch.device("cuda", island.rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(island.seed)
text = torch.from_numpy(numpy.fromfile(settings["text"], numpy.uint8).astype(numpy.int64))
windows = text.unfold(0, settings["length"] + 1, settings["length"])
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"]).to(device)
how = {"mesh": init_device_mesh(device.type, (island.ranks,)), "reshard_after_forward": device.type == "cuda"}
for module in [*model.h, model]:
    fully_shard(module, **how)
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
held_out = windows[-4:].to(device)
loader = island.loader(windows[:-4], batch_size=settings["batch"] // island.ranks)  # of each rank

with island.train(model, opt, evaluate=lambda: model(held_out[:, :-1], held_out[:, 1:])):
    for batch in loader:
        batch = batch.to(device)
        loss = model(batch[:, :-1], batch[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)
