"""What islands have followed of a run: the batches that train_loops.py and frameworks_loops.py write down, and the models that they keep."""

import json
import pathlib

import ends_test
from islands import Clusters

import numpy

STEPS = 240
# With outer steps that are the islands' mean, so that few rounds end near a plain loop.
MEAN = "\nouter_learning_rate = 1.0\nouter_momentum = 0.0"
STRATEGIES = {name: ends_test.STRATEGIES[name] + MEAN for name in ("diloco", "streaming-diloco")}


class Followed(Clusters):
    def steps_of(self, folder, name):
        """Of an island, without those that were lost with a process and came again."""
        path = pathlib.Path(folder, name + ".steps")
        found = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            if line.endswith("}"):
                step = json.loads(line)
                found = {position: each for position, each in found.items() if position < step["position"]}
                found[step["position"]] = step
        return list(found.values())

    def follow_the_run(self, folder, names, rate, samples=240):
        """Rates are the plain loop's at the run's steps, no sample comes twice in a pass, and the first pass is whole."""
        seen = []
        for name in names:
            for each in self.steps_of(folder, name):
                self.assertAlmostEqual(each["rate"], rate(each["step"]), places=12, msg=f"{name} {each}")
                seen += zip(each["passes"], each["samples"])
        self.assertEqual(len(seen), len(set(seen)), "samples came twice in a pass")
        self.assertEqual({sample for number, sample in seen if number == 0}, set(range(samples)), "samples of the first pass are missing")

    def have_the_exported_model(self, folder, names, exported):
        """Gives the held-out loss that the islands have measured of it."""
        import torch

        kept = [torch.load(f"{folder}/{name}.pt") for name in names]
        for island in kept:
            self.assertTrue(island["complete"])
            self.assertLessEqual(set(exported), set(island["model"]))
            for name, values in exported.items():
                numpy.testing.assert_array_equal(island["model"][name].numpy(), values, name)
        self.assertEqual(sorted(island["first"] for island in kept), [False] * (len(kept) - 1) + [True])
        return kept[0]["loss"]
