"""`loggers_loop.py [STEPS FOLDER LOGGER]`: a line is trained with every logger and one that fails, or with one alone. Run by loggers_test.py."""

import json
import os
import sys
import time

import torch
from train_loops import Rows, held_out, loss_of, parts

from atoll import loggers


def fails():
    raise SystemExit("it is broken")


island, model, opt, sched = parts(int(sys.argv[1]) if len(sys.argv) > 1 else None, every=10)
folder = island.settings["folder"] or sys.argv[2]
if len(sys.argv) > 3:  # one alone, whose server hangs
    loggers._PATIENCE = 1.0
    getattr(loggers, sys.argv[3])(island)
else:
    loggers.wandb(island, project="line", dir=folder)
    loggers.mlflow(island, experiment="line", uri=f"{folder}/mlflow")
    loggers.tensorboard(island, f"{folder}/tensorboard")
    loggers.log_to(island, fails, "that fails")
with island.train(model, opt, scheduler=sched, evaluate=lambda: (held_out(model), {"half": 0.5})):
    with open(f"{folder}/{island.name}.losses", "a", buffering=1) as out:
        for rows, wanted, _ in island.loader(Rows(), batch_size=6):
            loss = loss_of(model, rows, wanted)
            island.log(loss=loss, doubled=2 * loss)
            out.write(json.dumps([island.step + 1, loss.item()]) + "\n")
            loss.backward()
            opt.step()
            sched.step()
            opt.zero_grad()
            while island.step == 35 and not os.path.exists(f"{folder}/{island.settings.get('gate', '')}"):
                time.sleep(0.05)
torch.save({"step": island.step, "complete": island.complete}, f"{folder}/{island.name}.pt")
