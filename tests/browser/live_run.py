"""A coordinator and agents of real processes, for tests in Python that look at them from outside."""

import os
import pathlib
import random
import socket
import subprocess
import tempfile
import time
import unittest

RUN = """[run]
name = "tides"
[model]
layers = 1
width = 32
heads = 2
[data]
set = "corpus"
[training]
steps = 400
batch = 4
sequence_length = 16
warmup_steps = 1
[strategy]
name = "diloco"
inner_steps = 10
[islands]
min = 2
max = 2
deadline = "60s"
"""


def free_port():
    """Below the range from which outgoing connections get theirs: none of those takes it before it is listened at."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class LiveRun(unittest.TestCase):
    """The program and the trainer's module are `atoll` and `module` of the class."""

    atoll = module = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.state = folder.name, os.path.join(folder.name, "coordinator")
        (pathlib.Path(self.folder) / "text.txt").write_text("x" * 100000)
        (pathlib.Path(self.folder) / "run.toml").write_text(RUN)
        self.web = f"127.0.0.1:{free_port()}"
        self.release = os.path.join(self.folder, "release")  # a file: trainers go on beyond the step at which they are held

    def command(self, *arguments):
        done = subprocess.run([self.atoll, *arguments, "--state", self.state], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def start(self, *arguments, **environment):
        log = open(os.path.join(self.folder, "log"), "a")
        process = subprocess.Popen([self.atoll, *arguments], stdout=log, stderr=log, env={**os.environ, "ATOLL_TRAINER_MODULE": self.module, **environment})
        log.close()
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def start_coordinator(self, *options):
        address = f"tcp://127.0.0.1:{free_port()}"
        self.command("coordinator", "init", "--bind", address, "--advertise", address, "--network", "local")
        coordinator = self.start("coordinator", "--state", self.state, "--web", self.web, *options)
        for _ in range(100):
            if subprocess.run([self.atoll, "runs", "--state", self.state], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        return coordinator

    def start_agents(self, *names, hold_at, options=None):
        agents = []
        for name in names:
            token = self.command("token", "create", "-q")
            agents.append(self.start("agent", "--state", os.path.join(self.folder, name), "--name", name, "--join", token, "--data", f"corpus={self.folder}/text.txt", *(options or {}).get(name, []),
                                     ATOLL_TEST_HOLD_AT=str(hold_at), ATOLL_TEST_RELEASE=self.release))
        return agents

    def submit(self):
        return self.command("submit", os.path.join(self.folder, "run.toml"), "-q")

    def wait_for(self, what, value, seconds=60):
        """The first value that is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = value()
            if found:
                return found
            time.sleep(0.2)
        self.fail("not within %d s: %s" % (seconds, what))
