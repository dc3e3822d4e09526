"""The learning rate of islands that join late, are killed and come back, or leave out steps: a coordinator and agents of the real executable, and the
loop that docs/own-trainer.md shows. Arguments as own_test.py's."""

import pathlib
import time
import unittest

from islands import ATOLL, Agents, needs_torch

STEPS = 300


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class Rates(Agents):
    def submit(self, least, strategy="", pauses=""):
        path = pathlib.Path(self.state("run.toml"))
        path.write_text(
            f"[run]\nname = 'rates'\n[trainer]\nname = 'own'\n[trainer.settings]\nfolder = '{self.folder.name}'\n{pauses}"
            f"[training]\nsteps = {STEPS}\n[strategy]\nname = 'diloco'\ninner_steps = 10\n{strategy}[islands]\nmin = {least}\nmax = 2\n"
        )
        return self.said("submit", "-q", str(path), "--state", self.state("coordinator"))

    def rates(self, name):
        """(step, rate) of the steps that the island did, in their order."""
        path = pathlib.Path(self.state(name) + ".rates")
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), float(line.split()[1])) for line in lines if len(line.split()) == 3]

    def reaches(self, name, step):
        self.wait_until(lambda: (self.rates(name) or [(-1, 0)])[-1][0] >= step)

    def ends_as_the_plain_loop(self, run, names):
        self.waited(run)
        for name in names:
            rates = self.rates(name)
            for step, rate in rates:
                self.assertAlmostEqual(rate, 0.1 * (1 - step / STEPS), places=9, msg=f"{name}, step {step}")
            self.assertGreaterEqual(rates[-1][0], STEPS - 10, name)
        return {name: [step for step, _ in self.rates(name)] for name in names}

    def test_of_one_that_joins_late_and_one_that_is_killed_and_comes_back(self):
        self.agent("a", "rates")
        run = self.submit(least=1, pauses="a = 0.05\nb = 0.05\n")
        self.reaches("a", 50)
        self.agent("b", "rates")
        self.wait_until(lambda: self.rates("b"))
        begun = len(self.rates("b"))
        self.assertGreaterEqual(self.rates("b")[0][0], 50)
        self.wait_until(lambda: len(self.rates("b")) > begun + 25)
        self.running["b"].kill()
        self.running["b"].wait()
        killed = len(self.rates("b"))
        time.sleep(0.5)  # in which the other goes on
        self.agent("b", "rates")
        self.wait_until(lambda: len(self.rates("b")) > killed)
        self.ends_as_the_plain_loop(run, "ab")

    def test_of_islands_with_adaptive_pace(self):
        self.agent("a", "rates")
        self.agent("b", "rates")
        run = self.submit(least=2, strategy="pace = 'adaptive'\n", pauses="a = 0.01\nb = 0.04\n")
        steps = self.ends_as_the_plain_loop(run, "ab")
        self.assertLess(len(steps["b"]), len(steps["a"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
