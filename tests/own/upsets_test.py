"""What upsets a trainer and leaves no mark: a batch that is not a number, and work that takes long between two steps. Arguments as own_test.py's."""

import pathlib
import tempfile
import unittest

from ends_test import STRATEGIES
from islands import ATOLL, HERE, LAUNCHES, PYTHON, Agents, Clusters, needs_torch


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class BadBatches(Clusters):
    def test_after_a_batch_that_is_not_a_number_a_trainer_goes_back_to_its_last_good_state(self):
        each = [(name, 24, "batch") for name in ("diloco", "streaming-diloco", "noloco", "decoupled-diloco")]
        for name, bad, what in (*each, ("diloco", 2, "batch"), ("diloco", 29, "parameters")):  # nothing is saved yet; no loss says it
            with self.subTest(f"{name} {bad} {what}"), tempfile.TemporaryDirectory() as folder:
                settings = {"folder": folder, "bad": bad, "what": what}
                pace = "\npace = 'fixed'" if name == "decoupled-diloco" else ""  # an adaptive one may leave out the very step
                process = self.local(folder, f"{PYTHON} '{HERE}/loops.py' bad_batch", settings, 100, STRATEGIES[name] + pace, pace=20.0)
                document = self.completed(process)
                self.assertEqual(document["run"]["state"], "completed", document["run"]["reason"])
                warnings = [warning["text"] for warning in document["warnings"]]
                words = f"the loss of step {bad + 1} was not finite" if what == "batch" else "of the contribution is not finite"
                self.assertTrue(any(words in text for text in warnings), warnings)
                self.assertTrue(any("begins again from the state that it saved last" in text for text in warnings), warnings)
                self.assertFalse(any("quarantine" in text for text in warnings), warnings)
                for island in ("island-1", "island-2"):
                    self.assertEqual(pathlib.Path(folder, island).read_text(), "12 True", island)

    @unittest.skipUnless(LAUNCHES, "this PyTorch has a torchrun of its own")
    def test_all_ranks_go_back_together_whichever_met_it(self):
        for rank in (0, 1):
            with self.subTest(rank), tempfile.TemporaryDirectory() as folder:
                settings = {"folder": folder, "bad": 24, "what": "batch", "rank": rank}
                command = f"{PYTHON} -m atoll.ranks 2 '{HERE}/loops.py' bad_batch"
                document = self.completed(self.local(folder, command, settings, 60, STRATEGIES["diloco"], pace=20.0))
                self.assertEqual(document["run"]["state"], "completed", document["run"]["reason"])
                warnings = [warning["text"] for warning in document["warnings"]]
                self.assertTrue(any("the loss of step 25 was not finite" in text for text in warnings), warnings)
                self.assertTrue(any("begins again from the state that it saved last" in text for text in warnings), warnings)
                for of_rank in ("island-1", "island-1.1", "island-2", "island-2.1"):
                    self.assertEqual(pathlib.Path(folder, of_rank).read_text(), "12 True", of_rank)

    def test_where_gradients_are_exchanged_a_bad_one_enters_no_optimiser(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"folder": folder, "bad": 24, "what": "batch"}
            document = self.completed(self.local(folder, f"{PYTHON} '{HERE}/loops.py' bad_batch", settings, 60, "name = 'data-parallel'", pace=20.0))
            self.assertEqual(document["run"]["state"], "completed", document["run"]["reason"])
            warnings = [warning["text"] for warning in document["warnings"]]
            self.assertTrue(any("the loss of step 25 was not finite" in text for text in warnings), warnings)
            self.assertFalse(any("begins again" in text for text in warnings), warnings)
            for island in ("island-1", "island-2"):
                self.assertEqual(pathlib.Path(folder, island).read_text(), "12 True", island)


@unittest.skipUnless(ATOLL, "the executable is not given")
class LongSteps(Agents):
    def test_a_long_first_step_and_long_evaluations_are_no_hang(self):
        self.agent("a", "slow", "--trainer-hang-after", "2s")
        self.waited(self.submitted("long", {"seconds": 5, "hangs": -1}, "name = 'diloco'\ninner_steps = 10"))
        self.assertNotIn("made no progress", self.log_of("a"))

    def test_a_long_step_later_is_one(self):
        self.agent("a", "slow", "--trainer-hang-after", "2s")
        run = self.submitted("hang", {"seconds": 5, "hangs": 3}, "name = 'diloco'\ninner_steps = 10")
        self.wait_until(lambda: "made no progress" in self.log_of("a"))
        self.said("cancel", run, "--state", self.state("coordinator"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
