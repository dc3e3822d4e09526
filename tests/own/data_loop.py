"""A program over a parquet file, as `datasets` reads it, with two workers that stay. Run by data_test.py."""

import json
import time

import datasets
import torch
from train_loops import passes_of

import atoll.torch as atoll

island = atoll.join()
folder = island.settings["folder"]
datasets.disable_progress_bars()
items = datasets.load_dataset("parquet", data_files=f"{folder}/rows.parquet", split="train", cache_dir=f"{folder}/cache-{island.name}").with_format("torch")
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
opt = torch.optim.AdamW(model.parameters(), 0.01)
with open(f"{folder}/{island.name}.steps", "a", buffering=1) as out, island.train(model, opt):
    for batch in island.loader(items, batch_size=3, num_workers=2, persistent_workers=True):
        numbers = batch["number"].tolist()
        said = {"step": island.step, "rate": 0.01, "position": island.position, "samples": numbers, "passes": passes_of(island, len(numbers))}
        out.write(json.dumps(said) + "\n")
        loss = (model(batch["row"]).squeeze(1) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)
        time.sleep(island.settings["pause"])
