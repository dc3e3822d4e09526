"""Data as people have them: `datasets` from tables and from files, token shards, streams with a state, torchdata's loader. See environment.py.

Whatever is killed and goes on, each sample comes once in a pass, on one island or another. Arguments as own_test.py's.
"""

import environment

environment.enter("torch", "datasets", "torchdata")

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

from islands import ATOLL, HERE, PYTHON
from true_loops import island_of, optimizer_of

import datasets
import numpy
import torch
from followed import STRATEGIES, Followed
from torchdata.stateful_dataloader import StatefulDataLoader

ITEMS = 48
datasets.disable_progress_bars()


class Tokens(torch.utils.data.Dataset):
    """Windows of the shards that nanoGPT (uint16) and llm.c (the same behind a head of 256 int32) read: opened in each process, read where asked."""

    def __init__(self, paths, head, length=8):
        self.shards = [numpy.memmap(path, numpy.uint16, "r", offset=head) for path in paths]
        self.length = length
        self.windows = [(shard, start) for shard in self.shards for start in range(0, len(shard) - length + 1, length)]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        shard, start = self.windows[index]
        return {"number": int(shard[start]), "tokens": torch.from_numpy(shard[start : start + self.length].astype(numpy.int64))}


def written(folder):
    """{kind: a data set of ITEMS items that know their numbers}, as files of each kind."""
    rows = [{"number": number, "text": f"line {number}"} for number in range(ITEMS)]
    table = datasets.Dataset.from_list(rows)
    table.to_parquet(f"{folder}/a.parquet")
    pathlib.Path(folder, "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shards = {"nano": [], "llm": []}
    for part in range(2):
        own = numpy.repeat(numpy.arange(part * ITEMS // 2, (part + 1) * ITEMS // 2, dtype=numpy.uint16), 8)
        shards["nano"].append(f"{folder}/nano-{part}.bin")
        own.tofile(shards["nano"][-1])
        shards["llm"].append(f"{folder}/llm-{part}.bin")
        head = numpy.zeros(256, numpy.int32)
        head[:3] = 20240520, 1, len(own)
        pathlib.Path(shards["llm"][-1]).write_bytes(head.tobytes() + own.tobytes())
    load = lambda kind, path: datasets.load_dataset(kind, data_files=path, split="train", cache_dir=f"{folder}/cache")  # noqa: E731
    return {
        "a table": table,
        "parquet": load("parquet", f"{folder}/a.parquet"),
        "jsonl": load("json", f"{folder}/a.jsonl"),
        "nanoGPT's shards": Tokens(shards["nano"], 0),
        "llm.c's shards": Tokens(shards["llm"], 1024),
    }


def ran(island, batches, each=lambda step, island: None, **how):
    """The numbers of the samples that each batch had."""
    (model, opt), seen = optimizer_of(), []
    with contextlib.redirect_stderr(io.StringIO()), island.train(model, opt, **how):
        for batch in batches():
            seen.append(batch["number"].tolist())
            opt.step()
            each(island.step, island)
    return seen


class Indexed(unittest.TestCase):
    def test_each_sample_comes_once_in_a_pass_whoever_is_killed_and_however_many_workers_there_are(self):
        """Two islands; one is killed after a step, goes on there, and is alone from then on."""
        first = {"classes": 2, "stretches": [{"from": 0, "classes": [{"number": 0, "next": 0}]}]}
        second = {"classes": 2, "stretches": [{"from": 0, "classes": [{"number": 1, "next": 0}]}]}
        with tempfile.TemporaryDirectory() as folder:
            for kind, items in written(folder).items():
                orders = {}
                for workers in (0, 1, 3):
                    more = {"persistent_workers": True, "prefetch_factor": 3} if workers else {}

                    def passed(data, steps, resume=None):
                        island = island_of(resume, data=data, training={"steps": steps})
                        loader = island.loader(items, batch_size=3, num_workers=workers, **more)
                        return ran(island, lambda: loader)

                    with self.subTest(kind, workers=workers):
                        self.assertEqual(len(items), ITEMS)
                        before = passed(first, 5)
                        rest = passed(first, 8, {"step": 5, "position": 15})
                        other = passed(second, 8)
                        found = [number for batch in before + rest + other for number in batch]
                        self.assertEqual(sorted(found), list(range(ITEMS)))
                        orders[workers] = before + rest + other
                self.assertEqual(orders[0], orders[1])
                self.assertEqual(orders[0], orders[3])

    def test_workers_that_stay_follow_a_jump(self):
        from atoll import _library as library

        items = datasets.Dataset.from_list([{"number": number} for number in range(400)])
        seen = []
        for workers in (0, 2):
            island = island_of(orders={7: library.Order(library.STAND_AT, step=20, position=61)}, training={"steps": 30})
            loader = island.loader(items, batch_size=3, num_workers=workers, **({"persistent_workers": True} if workers else {}))
            seen.append(ran(island, lambda: loader))
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(len(seen[0]), 17)


class Streamed(unittest.TestCase):
    """Streams that the program has cut itself, and whose state is saved with the island's."""

    def stream(self, files=4):
        rows = lambda shards: ({"number": number} for shard in shards for number in range(shard, ITEMS, files))  # noqa: E731
        return datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": list(range(files))})

    def goes_on(self, source):
        """source() → what gives batches, and what of it is saved. In the middle a program ends, and another one goes on."""
        from atoll.torch import Alone, TorchIsland

        def passed(steps, folder):
            batches, kept = source()
            island = TorchIsland(Alone({"training": {"steps": steps}}, folder=folder), {})
            return ran(island, lambda: island.batches(batches, samples=4), state={"stream": kept})

        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            whole = passed(12, one)
            self.assertEqual(passed(5, two) + passed(12, two), whole)
            self.assertEqual(sorted(number for batch in whole for number in batch), list(range(ITEMS)))

    def test_a_stream_of_datasets(self):
        def batched():
            stream = self.stream().with_format("torch").batch(4)
            return stream, stream

        self.goes_on(batched)

    def test_torchdata_s_loader_with_workers_that_stay(self):
        for workers in (0, 2):
            with self.subTest(workers=workers):

                def source():
                    more = {"persistent_workers": True} if workers else {}
                    loader = StatefulDataLoader(self.stream(), batch_size=4, num_workers=workers, **more)
                    return loader, loader

                self.goes_on(source)

    def test_a_shuffled_stream_is_refused_by_name(self):
        """Its state has nothing of what its buffer holds: 43 of 48 samples would come."""
        shuffled = self.stream().shuffle(seed=1, buffer_size=10)
        for kept in (shuffled, shuffled.map(lambda row: row), StatefulDataLoader(shuffled, batch_size=4, num_workers=2)):
            with self.assertRaisesRegex(ValueError, r"state\['streams'\]\[1\] is a shuffled stream"):
                island_of().start(*optimizer_of(), state={"streams": [self.stream(), kept]})


@unittest.skipUnless(ATOLL, "the executable is not given")
class OnIslands(Followed):
    def test_a_parquet_file_on_two_islands_of_which_one_is_killed(self):
        """kill -9 beside workers that stay: each sample once in a pass."""
        with tempfile.TemporaryDirectory() as folder:
            datasets.Dataset.from_list([{"number": number, "row": [number / 240.0] * 4} for number in range(240)]).to_parquet(f"{folder}/rows.parquet")
            process = self.local(folder, f"{PYTHON} '{HERE}/data_loop.py'", {"folder": folder, "pause": 0.01}, 100, STRATEGIES["diloco"])
            self.goes_on(folder, process, "data_loop.py")
            self.follow_the_run(folder, ["island-1", "island-2"], lambda step: 0.01)


if __name__ == "__main__":
    unittest.main(verbosity=2)
