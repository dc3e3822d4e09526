"""Programs without an agent: they train, validate, save, go on and end as the page says. Tests of own_test.py."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from islands import HERE, PYTHON, needs_torch

import numpy

WITHOUT = {key: value for key, value in os.environ.items() if key != "ATOLL_ISLAND_LINK"}


class WithoutAgent(unittest.TestCase):
    def loop(self, *arguments, ranks=1):
        """`loops.py alone …`: what it is told on standard error, and its parameters."""
        launch = ["-m", "atoll.ranks", str(ranks)] if ranks > 1 else []
        command = [PYTHON, *launch, str(HERE / "loops.py"), "alone", *map(str, arguments)]
        said = subprocess.run(command, env=WITHOUT, capture_output=True, text=True, timeout=120)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stderr, said.stdout.strip()

    def test_it_ends_once_it_is_enough_and_says_the_loss(self):
        from atoll import Alone, NumpyIsland

        island, said = NumpyIsland(Alone({"training": {"steps": 9}}), {}), io.StringIO()
        island.start({"w": numpy.zeros(2)}, evaluate=lambda: (0.25, {"accuracy": 1}))
        with contextlib.redirect_stderr(said):
            for step in island.steps():
                if step == 4:
                    island.enough("accuracy 1")
                island.done(1.0, samples=4)
        self.assertEqual((island.step, island.complete, island.first), (5, True, True))
        self.assertEqual(said.getvalue(), "atoll: step 5: training loss 1, held-out loss 0.25, accuracy 1\n")

    def test_it_ends_after_its_steps_and_evaluates_at_its_interval(self):
        from atoll import Alone, NumpyIsland

        island, said = NumpyIsland(Alone({"training": {"steps": 7}}, every=3), {}), io.StringIO()
        losses = iter((0.5, 0.25, 0.125))
        island.start({"w": numpy.zeros(2)}, evaluate=lambda: next(losses))
        with contextlib.redirect_stderr(said):
            for step in island.steps():
                island.done(float(step), samples=4, error=step / 2)
        expected = [(3, 1, 0.5, 0.5), (6, 4, 0.25, 2), (7, 6, 0.125, 3)]
        self.assertEqual(
            said.getvalue(), "".join(f"atoll: step {step}: training loss {loss:g}, error {error:g}, held-out loss {held:g}\n" for step, loss, held, error in expected)
        )
        self.assertEqual(island._losses, [])  # they are not kept for ever

    def goes_on(self, kind, ranks=1):
        with tempfile.TemporaryDirectory() as folder:
            told, whole = self.loop(kind, 20, ranks=ranks)
            self.assertNotIn("goes on", told)
            kept = folder + "/kept"
            _, first = self.loop(kind, 12, kept, ranks=ranks)
            self.assertNotEqual(first, whole)
            self.assertEqual(os.listdir(kept), ["12"])  # the last one alone
            told, resumed = self.loop(kind, 20, kept, ranks=ranks)
            self.assertIn(f"atoll: goes on after step 12, from {kept}/12\n", told)
            self.assertEqual(resumed, whole)
            again, same = self.loop(kind, 20, kept, ranks=ranks)  # nothing is left to do
            self.assertEqual((same, re.search(r"atoll: step", again)), (whole, None), again)

    def test_numpy_goes_on_bit_for_bit(self):
        self.goes_on("numpy")

    def test_what_exchanges_goes_on_bit_for_bit(self):
        self.goes_on("exchange")

    @needs_torch
    def test_torch_goes_on_bit_for_bit(self):
        self.goes_on("torch")

    @needs_torch
    def test_ranks_go_on_bit_for_bit(self):
        self.goes_on("torch", ranks=2)

    def test_killed_in_the_middle_of_a_save_it_goes_on_from_the_one_before(self):
        with tempfile.TemporaryDirectory() as folder:
            _, whole = self.loop("numpy", 12)
            self.loop("numpy", 5, folder)
            half = pathlib.Path(folder, "saving")
            half.mkdir()
            (half / "state.pickle").write_bytes(b"half of i")
            told, resumed = self.loop("numpy", 12, folder)
            self.assertIn(f"atoll: goes on after step 5, from {folder}/5\n", told)
            self.assertEqual((resumed, os.listdir(folder)), (whole, ["12"]))

    def test_a_folder_that_cannot_be_written_is_said_and_the_training_goes_on(self):
        with tempfile.NamedTemporaryFile() as file:
            told, _ = self.loop("numpy", 12, file.name + "/under")
            self.assertIn(f"atoll: nothing is saved in {file.name}/under: ", told)

    def test_another_program_s_folder_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "7").mkdir()
            command = [PYTHON, str(HERE / "loops.py"), "alone", "numpy", "12", folder]
            said = subprocess.run(command, env=WITHOUT, capture_output=True, text=True, timeout=120)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn(f"{folder}/7 is not what a program without an agent saves", said.stderr)


