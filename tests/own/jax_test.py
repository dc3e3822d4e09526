"""JAX with optax and flax's nnx on islands of the real executable. Arguments as own_test.py's; see environment.py."""

import environment

environment.enter("torch", "jax", "optax", "flax")

import subprocess
import tempfile
import unittest

import numpy
from followed import STRATEGIES, Followed
from frameworks_test import WITHOUT
from islands import ATOLL, HERE, PYTHON, tensors_of

STEPS = 100


class Alone(unittest.TestCase):
    def program(self, name, folder, steps=STEPS, code=0):
        command = [PYTHON, str(HERE / "jax_loops.py"), name, str(steps), folder]
        done = subprocess.run(command, env=WITHOUT, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        return done.stderr + done.stdout

    def test_keys_and_statistics_are_this_island_s_own(self):
        self.assertIn("3.0 ", self.program("linen", ""))

    def test_what_cannot_be_shared_is_refused_by_name(self):
        self.assertIn("parameter 'seen' has type int32, which float32 cannot carry", self.program("counts", "", code=1))

    def test_it_goes_on_with_its_keys(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            self.program("line", one, steps=40)
            self.program("line", two, steps=20)
            self.assertIn("goes on after step 20", self.program("line", two, steps=40))


@unittest.skipUnless(ATOLL, "the executable is not given")
class Together(Followed):
    def test_nnx_and_optax(self):
        """Parameters and statistics are the run's on both islands, and on each its own random numbers, after a kill too."""
        with tempfile.TemporaryDirectory() as folder:
            Alone.program(self, "line", folder)
            plain = float(numpy.load(folder + "/alone.npz")["loss"])
        for strategy, lines in STRATEGIES.items():
            with self.subTest(strategy=strategy), tempfile.TemporaryDirectory() as folder:
                process = self.local(folder, f"{PYTHON} '{HERE}/jax_loops.py' line", {"folder": folder, "pause": 0.02}, STEPS, lines)
                self.goes_on(folder, process, "jax_loops.py")
                names = ["island-1", "island-2"]
                self.follow_the_run(folder, names, lambda step: 0.01 * max(0.02, 1 - step / STEPS))
                exported, kept = tensors_of(folder + "/model.safetensors"), [numpy.load(f"{folder}/{name}.npz") for name in names]
                self.assertLessEqual({"first.kernel", "norm.scale", "norm.mean", "norm.var"}, set(exported))
                for island in kept:
                    self.assertTrue(island["complete"])
                    for name, values in exported.items():
                        numpy.testing.assert_array_equal(island[name], values, name)
                self.assertEqual(sorted(bool(island["first"]) for island in kept), [False, True])
                self.assertLess(kept[0]["loss"], 1.3 * plain + 0.3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
