"""What the tests of trainers of one's own share: where things are, how loops are started, and two islands of the real executable.

    …_test.py LIBRARY.so [ATOLL LINEAR]      what is missing (NumPy, PyTorch) is said, and its tests are left out
$ATOLL_TORCH_PYTHON: the command that runs trainers with PyTorch instead of this Python, "chroot /srv/trixie python3" (debian13.sh).
"""

import importlib.util
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
PACKAGE = SOURCE / "agent/island_link/python"
PYTHON = sys.executable

if importlib.util.find_spec("numpy") is None:
    print("skipped: NumPy is not installed (apt-get install python3-numpy)")
    sys.exit(4)
LINEAR = str(pathlib.Path(sys.argv.pop(3)).resolve()) if len(sys.argv) > 3 and os.path.exists(sys.argv[3]) else None
ATOLL = str(pathlib.Path(sys.argv.pop(2)).resolve()) if len(sys.argv) > 2 and os.path.exists(sys.argv[2]) else None
os.environ.update(ATOLL_TRAINER_LIBRARY=str(pathlib.Path(sys.argv.pop(1)).resolve()), PYTHONPATH=str(PACKAGE), OMP_NUM_THREADS="1")
sys.path.insert(0, str(PACKAGE))

PATIENCE = 60  # seconds
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (apt-get install python3-torch)")
LAUNCHES = sys.version_info >= (3, 11) and HAS_TORCH and importlib.import_module("torch").__version__ < "2"  # their torchrun does not start
needs_jax = unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
TORCH_PYTHON = shlex.split(os.environ.get("ATOLL_TORCH_PYTHON", PYTHON))


def descendants(pid):
    found = []
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except OSError:  # it has ended, or a thread of it
        pass
    return found + [each for child in found for each in descendants(child)]


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def rank_of(pid):
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return None
    return next((int(variable[5:]) for variable in variables if variable.startswith("RANK=")), None)


def tensors_of(path):
    """The float32 tensors of a safetensors file by their names."""
    import numpy

    content = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    values = lambda entry: content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]  # noqa: E731
    return {name: numpy.frombuffer(values(entry), "<f4").reshape(entry["shape"]) for name, entry in header.items()}


def saved(folder, least, island="island-1"):
    """Whether this island of `local` has a checkpoint of this round or a later one: older ones go."""
    numbers = [path.name for path in pathlib.Path(folder).glob(f"state/{island}/runs/*/checkpoints/*")]
    return any(number.isdigit() and int(number) >= least for number in numbers)


def loop(name, ranks=1):
    launch = [*TORCH_PYTHON, "-m", "atoll.ranks", str(ranks)] if ranks > 1 else [*TORCH_PYTHON]
    return [*launch, str(HERE / "loops.py"), name]


class Clusters(unittest.TestCase):
    """What two islands of the real executable are asked and looked at with."""

    def local(self, folder, command, settings, steps, strategy="name = 'diloco'\ninner_steps = 10", pace=0.0, model="", islands=2, trainer="", options=()):
        """trainer: further lines of [trainer]; model: a section of its own."""
        pathlib.Path(folder, "text").write_text("x" * 10000)
        path = os.path.join(folder, "run.toml")
        given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        pathlib.Path(path).write_text(
            f"[run]\nname = 'own'\n[trainer]\nname = 'own'\ntokens_per_sample = 64\n{trainer}[trainer.settings]\n" + given + model + "[data]\nfiles = ['text']\n"
            f"[training]\nsteps = {steps}\nmax_steps_per_second = {pace}\n[strategy]\n{strategy}\n"
            f"[islands]\nmin = {islands}\nmax = {islands}\n[checkpoint]\nevery_rounds = 1\n"
        )
        return self.start(folder, path, "--trainer", f"own={command}", *options)

    def start(self, folder, file, *options):
        state, model = folder + "/state", folder + "/model.safetensors"
        return subprocess.Popen(
            [ATOLL, "local", file, "--state", state, "--network", "local", "-o", "json", "--export", model, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def completed(self, process):
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 0, err)
        return json.loads(out)

    def kill_one(self, process, program, after):
        """kill -9 of the first process below `process` that is `program`, or a Python that runs it, once `after` holds."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            words = lambda pid: command_of(pid)[1:2] if program.endswith(".py") else command_of(pid)[:1]  # noqa: E731
            victims = [pid for pid in descendants(process.pid) if any(word.endswith(program) for word in words(pid))]
            if victims and after():
                os.kill(victims[0], signal.SIGKILL)
                return
            time.sleep(0.1)
        self.fail("nobody was there to be killed")

    def kill_rank(self, process, program, rank, after):
        """kill -9 of the process of this rank that runs `program`, of the first island found, once `after` holds."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            for pid in descendants(process.pid) if after() else []:
                if any(word.endswith(program) for word in command_of(pid)) and rank_of(pid) == rank:
                    os.kill(pid, signal.SIGKILL)
                    return
            time.sleep(0.1)
        self.fail("nobody was there to be killed")

    def killed_in_the_middle(self, command, program, settings, steps, pace):
        with tempfile.TemporaryDirectory() as folder:
            return self.goes_on(folder, self.local(folder, command, settings, steps, pace=pace), program)

    def goes_on(self, folder, process, program, said="was killed by signal 9"):
        """kill -9 of a trainer in the middle of a run, which completes; the header of the exported model."""
        self.kill_one(process, program, lambda: saved(folder, 2))
        self.assertEqual(self.completed(process)["run"]["state"], "completed")
        self.assertIn(said, "".join(path.read_text() for path in pathlib.Path(folder).glob("state/*.log")))
        with open(folder + "/model.safetensors", "rb") as file:
            return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{found.getsockname()[1]}"


class Agents(Clusters):
    """A coordinator and agents of the real executable, each started and ended by the test."""

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

    def agent(self, name, loop, *options):
        """loop: of loops.py, the trainer "own" of this agent; None: programs join it."""
        token = ["--join", self.said("token", "create", "-q", "--state", self.state("coordinator"))] if name not in self.running else []
        trainer = f"own={PYTHON} '{HERE}/loops.py' {loop}" if loop else "own=attach"
        self.begin(name, "agent", "--state", self.state(name), "--name", name, "--bind", "tcp://127.0.0.1:*", "--trainer", trainer, *token, *options)

    def submitted(self, name, settings, strategy, steps=20, least=1, more=""):
        """The id of a run of trainer "own" on so many islands. more: lines of [trainer]."""
        path = pathlib.Path(self.state(name + ".toml"))
        given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        path.write_text(
            f"[run]\nname = '{name}'\n[trainer]\nname = 'own'\n{more}[trainer.settings]\n{given}"
            f"[training]\nsteps = {steps}\n[strategy]\n{strategy}\n[islands]\nmin = {least}\nmax = {least}\n"
        )
        return self.said("submit", "-q", str(path), "--state", self.state("coordinator"))

    def waited(self, run):
        self.said("wait", run, "--state", self.state("coordinator"), "--timeout", "300s")

    def log_of(self, name):
        return pathlib.Path(self.state(name) + ".log").read_text()
