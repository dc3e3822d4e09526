"""The learning rate of islands that join late, are killed and come back, or leave out steps: a coordinator and agents of the real executable, and the
loop that docs/own-trainer.md shows. Arguments as own_test.py's."""

import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from islands import ATOLL, HERE, PATIENCE, PYTHON, Clusters, needs_torch

STEPS = 300


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{found.getsockname()[1]}"


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class Rates(Clusters):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.running = {}
        at = free_address()
        self.said("coordinator", "init", "--state", self.state("coordinator"), "--bind", at, "--advertise", at, "--network", "local")
        self.begin("coordinator", "coordinator", "--state", self.state("coordinator"))
        self.wait_until(lambda: subprocess.run([ATOLL, "islands", "--state", self.state("coordinator")], capture_output=True).returncode == 0)

    def tearDown(self):
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            process.wait(PATIENCE)
        self.folder.cleanup()

    def state(self, name):
        return f"{self.folder.name}/{name}"

    def said(self, *words):
        done = subprocess.run([ATOLL, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def begin(self, name, *words):
        with open(self.state(name) + ".log", "a") as log:
            self.running[name] = subprocess.Popen([ATOLL, *words], stdout=log, stderr=log)

    def agent(self, name):
        options = ["--join", self.said("token", "create", "-q", "--state", self.state("coordinator"))] if name not in self.running else []
        trainer = f"own={PYTHON} '{HERE}/loops.py' rates"
        self.begin(name, "agent", "--state", self.state(name), "--name", name, "--bind", "tcp://127.0.0.1:*", "--trainer", trainer, *options)

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
        self.said("wait", run, "--state", self.state("coordinator"), "--timeout", "300s")
        for name in names:
            rates = self.rates(name)
            for step, rate in rates:
                self.assertAlmostEqual(rate, 0.1 * (1 - step / STEPS), places=9, msg=f"{name}, step {step}")
            self.assertGreaterEqual(rates[-1][0], STEPS - 10, name)
        return {name: [step for step, _ in self.rates(name)] for name in names}

    def test_of_one_that_joins_late_and_one_that_is_killed_and_comes_back(self):
        self.agent("a")
        run = self.submit(least=1, pauses="a = 0.05\nb = 0.05\n")
        self.reaches("a", 50)
        self.agent("b")
        self.wait_until(lambda: self.rates("b"))
        begun = len(self.rates("b"))
        self.assertGreaterEqual(self.rates("b")[0][0], 50)
        self.wait_until(lambda: len(self.rates("b")) > begun + 25)
        self.running["b"].kill()
        self.running["b"].wait()
        killed = len(self.rates("b"))
        time.sleep(0.5)  # in which the other goes on
        self.agent("b")
        self.wait_until(lambda: len(self.rates("b")) > killed)
        self.ends_as_the_plain_loop(run, "ab")

    def test_of_islands_with_adaptive_pace(self):
        self.agent("a")
        self.agent("b")
        run = self.submit(least=2, strategy="pace = 'adaptive'\n", pauses="a = 0.01\nb = 0.04\n")
        steps = self.ends_as_the_plain_loop(run, "ab")
        self.assertLess(len(steps["b"]), len(steps["a"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
