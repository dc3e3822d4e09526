"""What a trainer has after its loop: the run's parameters, time to write them, and the name of one island that does. Arguments as own_test.py's."""

import pathlib
import subprocess
import tempfile
import unittest

import numpy
from islands import ATOLL, HERE, LAUNCHES, PYTHON, Agents, Clusters, needs_torch, tensors_of

TAIL = 5  # seconds: longer than a program that is asked to end may take
STRATEGIES = {
    "diloco": "name = 'diloco'\ninner_steps = 10",
    "streaming-diloco": "name = 'streaming-diloco'\ninner_steps = 10\nfragments = 2\noverlap_steps = 2\ngrouping = 'balanced'",
    "noloco": "name = 'noloco'\ninner_steps = 10",
    "eager-diloco": "name = 'eager-diloco'\ninner_steps = 10",
    "co2": "name = 'co2'\ninner_steps = 10",
    "fedbuff": "name = 'fedbuff'\ninner_steps = 10",
    "decoupled-diloco": "name = 'decoupled-diloco'\ninner_steps = 10\nquorum = 2\nfragments = 2\ngrouping = 'balanced'",
    "data-parallel": "name = 'data-parallel'",
}


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class Ends(Clusters):
    def test_after_the_loop_the_run_s_model_is_written_whatever_the_strategy(self):
        for name, strategy in STRATEGIES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                settings = {"folder": folder, "tail": TAIL if name == "diloco" else 0, "run": "r"}
                process = self.local(folder, f"{PYTHON} '{HERE}/loops.py' ends", settings, 40, strategy)
                self.assertEqual(self.completed(process)["run"]["state"], "completed")
                self.have_the_exported_model(folder, 40)

    def test_of_a_run_that_a_trainer_ends_early(self):
        for name in ("diloco", "streaming-diloco"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                settings = {"folder": folder, "tail": 0, "run": "r", "enough_at": 25}
                self.completed(self.local(folder, f"{PYTHON} '{HERE}/loops.py' ends", settings, 10_000, STRATEGIES[name], pace=50.0))
                self.have_the_exported_model(folder, None)

    @unittest.skipUnless(LAUNCHES, "this PyTorch has a torchrun of its own")
    def test_of_two_ranks_with_data_parallel_modules(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"folder": folder, "tail": 0, "run": "r"}
            command = f"{PYTHON} -m atoll.ranks 2 '{HERE}/loops.py' ends"
            self.completed(self.local(folder, command, settings, 40, STRATEGIES["streaming-diloco"]))
            self.have_the_exported_model(folder, 40)

    def have_the_exported_model(self, folder, steps):
        import torch

        exported = tensors_of(folder + "/model.safetensors")
        kept = [torch.load(path) for path in sorted(pathlib.Path(folder).glob("island-*.pt"))]
        self.assertEqual(len(kept), 2)
        for island in kept:
            self.assertTrue(island["complete"])
            self.assertEqual(island["step"], steps or kept[0]["step"])
            self.assertEqual(set(island["model"]), set(exported))
            for parameter, values in island["model"].items():
                numpy.testing.assert_array_equal(values.numpy(), exported[parameter], parameter)
        self.assertEqual(sorted(island["first"] for island in kept), [False, True])


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class Turns(Agents):
    """Agents that outlive a run."""

    def submit(self, name, tail, more=""):
        settings = {"folder": self.folder.name, "run": name, "tail": tail}
        return self.submitted(name, settings, STRATEGIES["diloco"], more=more)

    def turns(self):
        path = pathlib.Path(self.folder.name, "turns")
        return path.read_text().splitlines() if path.exists() else []

    def test_the_next_run_waits_for_the_program_of_the_one_before(self):
        self.agent("a", "ends")
        self.submit("one", TAIL)
        self.waited(self.submit("two", 0))
        self.wait_until(lambda: "a two ends" in self.turns())
        self.assertEqual(self.turns(), ["a one starts", "a one ends", "a two starts", "a two ends"])

    def test_an_agent_that_is_asked_to_leave_waits_for_it(self):
        self.agent("a", "ends")
        self.waited(self.submit("one", TAIL))
        self.running["a"].terminate()
        self.assertEqual(self.running["a"].wait(60), 0)
        self.assertEqual(self.turns(), ["a one starts", "a one ends"])

    def test_an_agent_that_is_asked_to_leave_ends_one_that_takes_longer_than_its_limit_and_names_it(self):
        self.agent("a", "ends", "--leave-within", "3s")
        self.waited(self.submit("one", 1000))
        self.wait_until(lambda: "a one starts" in self.turns())
        self.running["a"].terminate()
        self.assertEqual(self.running["a"].wait(60), 0)
        self.assertEqual(self.turns(), ["a one starts"])
        self.assertIn("the trainer had not ended within 3.0 s of the signal to leave (--leave-within), and is ended", self.log_of("a"))

    def test_a_program_that_joined_by_itself_and_ends_properly_leaves_no_warning(self):
        socket = pathlib.Path(self.state("a"), "trainers/own")
        self.agent("a", None)
        run = self.submit("one", 1)
        self.wait_until(socket.exists)
        joined = f"atoll.join = lambda settings: join(settings, path='{socket}')"
        code = f"import sys; sys.path.insert(0, '{HERE}'); import atoll, loops; join = atoll.join; {joined}; loops.with_numpy()"
        program = subprocess.Popen([PYTHON, "-c", code])
        self.waited(run)
        self.assertEqual(program.wait(60), 0)
        self.submit("two", 0)  # its trainer has the place once that of the first run has gone
        self.wait_until(socket.exists)
        self.assertNotIn("after the run's end", self.log_of("a"))

    def test_one_that_does_not_end_in_its_time_is_ended_and_named(self):
        self.agent("a", "ends")
        self.waited(self.submit("one", 1000, more="finish_within = '2s'\n"))
        self.waited(self.submit("two", 0))
        self.wait_until(lambda: "a two ends" in self.turns())
        self.assertIn("did not end within 2.0 s of the run's end ([trainer].finish_within)", self.log_of("a"))

    def test_one_that_fails_there_is_named_with_its_words(self):
        self.agent("a", "ends")
        self.waited(self.submit("one", -1))
        self.wait_until(lambda: "after the run's end" in self.log_of("a"))
        self.assertIn("sleep length must be non-negative", self.log_of("a"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
