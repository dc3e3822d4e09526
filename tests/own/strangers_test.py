"""What README and docs/own-trainer.md show, as a stranger does it: each line as it stands, on machines of their own, with the run file as it stands.

strangers_test.py ATOLL SOURCE [CLASS…]: needs root for machines (machines.py) and the built-in trainer.
"""

import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

import machines

ATOLL, SOURCE = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
PATIENCE = 240
COORDINATOR = "10.77.0.1"


def section(page, title):
    """The text below a title, up to the next one."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", page, re.S | re.M).group(1)


def block(text, language):
    return re.search(rf"^```{language}\n(.*?)^```$", text, re.S | re.M).group(1)


def groups(shell):
    """The lines of a block, by the comment that says on which machine they are typed."""
    found, lines = {}, None
    for line in shell.splitlines():
        if line.startswith("#"):
            lines = found.setdefault(line, [])
        elif line.strip():
            lines.append(line)
    return found


class Stranger(unittest.TestCase):
    """What is typed on a machine, and what came of it."""

    def wait(self, what, *processes):
        end = time.monotonic() + PATIENCE
        while not (found := what()):
            for process in processes:
                self.assertIsNone(process.poll(), pathlib.Path(process.log).read_text())
            if time.monotonic() > end:
                self.fail("\n".join(pathlib.Path(process.log).read_text() for process in processes))
            time.sleep(0.2)
        return found

    def said(self, machine, line, code=0):
        result = machine.run(line)
        self.assertEqual(result.returncode, code, f"{line}\n{result.stdout}{result.stderr}")
        return result.stdout

    def read(self, machine, line):
        result = machine.run(line)
        return json.loads(result.stdout) if result.returncode == 0 else None


class Trained(Stranger):
    """Two machines of a network, on which the run file of the README is trained."""

    def begin(self, network):
        """A first machine on which its own name leads to 127.0.1.1, as Debian's installer leaves it, and another one."""
        name = "coordinator.example.org"
        hub = network.machine("coordinator", COORDINATOR, {"127.0.1.1": f"{name} coordinator"})
        other = network.machine("lyon", "10.77.0.2", {COORDINATOR: name})
        text = "".join(path.read_text() for path in sorted((SOURCE / "strategies").glob("*.cpp")))
        for machine in (hub, other):
            machine.do("mkdir /srv/text && cat > /srv/text/book.txt", input=text)
        return hub, other

    def connected(self, hub, running):
        self.wait(lambda: len([one for one in (self.read(hub, "atoll islands -o json") or {"islands": []})["islands"] if one["connected"]]) == 2, *running)
        return {one["name"]: one for one in self.read(hub, "atoll islands -o json")["islands"]}

    def trained(self, hub, running, submit, status, export, generate):
        """The lines as they are typed, up to the second round; the run is cancelled then."""
        (hub.home / "run.toml").write_text(block(section((SOURCE / "README.md").read_text(), "A run file"), "toml"))
        following = hub.start(submit)
        run = self.wait(lambda: self.read(hub, "atoll runs -o json")["runs"], *running)[0]["id"]
        read = lambda: self.read(hub, f"atoll status {run} -o json")  # noqa: E731
        self.wait(lambda: read()["run"]["round"] >= 2, *running, following)
        document = read()
        self.assertEqual(document["run"]["state"], "running", document["run"]["reason"])
        self.assertEqual([one["active"] for one in document["islands"]], [True, True])
        self.assertLess(document["run"]["outer_loss"], 5)

        watching = hub.start(status.replace("RUN", run))
        self.wait(lambda: "first" in pathlib.Path(watching.log).read_text(), watching)
        hub.stop(watching, signal.SIGINT)
        watching.wait(60)
        shares = self.read(hub, f"atoll data {run} -o json")
        self.assertTrue(shares["proof"]["holds"], json.dumps(shares))
        self.said(hub, export.replace("RUN", run))
        self.assertGreater((hub.home / "model.safetensors").stat().st_size, 1_000_000)
        self.assertTrue(self.said(hub, generate).strip())

        self.said(hub, f"atoll cancel {run}")
        self.assertEqual(following.wait(60), 6, pathlib.Path(following.log).read_text())

    def ends(self, machine, process, how=signal.SIGTERM):
        self.assertIsNone(process.poll())
        machine.stop(process, how)
        self.assertEqual(process.wait(60), 0, pathlib.Path(process.log).read_text())


class WithAtoll(Stranger):
    """A machine whose user has an environment with the Python package in it, as the wheel puts it there, and PyTorch."""

    def activate(self, machine):
        """`pip install atoll-*.whl`, of the sources: the wheel itself is another test's (portable_test.py)."""
        if machine.run("python3 -c 'import torch'").returncode != 0:
            self.skipTest("/usr/bin/python3 has no PyTorch")
        shutil.copytree(SOURCE / "agent/island_link/python", machine.home / "python")
        self.said(machine, "python3 -m venv --system-site-packages venv && venv/bin/pip install -q --no-build-isolation ./python")
        machine.path = f"{machine.home}/venv/bin:{machine.path}"


class Readme(Trained, WithAtoll):
    def setUp(self):
        self.page = (SOURCE / "README.md").read_text()

    def test_the_first_five_minutes(self):
        pip, example, local = block(section(self.page, "The first five minutes"), "sh").splitlines()
        self.assertEqual(pip, "pip install atoll-*.whl")
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            machine = network.machine("lyon", "10.77.0.2", {})
            self.activate(machine)
            typed = machine.start(f"{example}\n{local}\n")
            self.assertEqual(typed.wait(PATIENCE), 0, pathlib.Path(typed.log).read_text())
            said = pathlib.Path(typed.log).read_text()
            self.assertIn("completed with 2 of 2 islands", said)
            start, end = re.search(r"loss +([\d.]+) at the start, ([\d.]+) at the end on held-out data", said).groups()
            self.assertLess(float(end), 3)
            self.assertGreater(float(start), 5)
            for made, least in (("model.pt", 1_000_000), ("sample.txt", 600)):
                self.assertGreater((machine.home / "my-run" / made).stat().st_size, least)

    def test_separate_machines(self):
        typed = groups(block(section(self.page, "On separate machines"), "sh"))
        ((up,), (join,), use) = typed.values()
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            hub, other = self.begin(network)
            first = hub.start(up)
            line = self.wait(lambda: re.search(r"(?m)^atoll join (\S+)$", pathlib.Path(first.log).read_text()), first)[1]
            self.assertTrue(line.endswith(f"@{COORDINATOR}:4400"), line)
            self.assertIn("TOKEN@HOST:4400", join)
            second = other.start(join.replace("TOKEN@HOST:4400", line))
            running = [first, second]
            islands = self.connected(hub, running)
            self.assertEqual(islands["lyon"]["address"], "tcp://10.77.0.2:4401")
            self.assertEqual(islands["coordinator"]["address"], f"tcp://{COORDINATOR}:4401")
            said = pathlib.Path(first.log).read_text()
            self.wait(lambda: "island lyon has joined, from 10.77.0.2" in pathlib.Path(first.log).read_text(), first)
            self.assertIn(f"machines of this network reach {COORDINATOR}", re.sub(r"\s+", " ", said))
            self.assertIn("<html", self.said(hub, "curl -sf http://127.0.0.1:4480/").lower())
            self.trained(hub, running, *use)
            self.ends(other, second, signal.SIGINT)
            self.ends(hub, first, signal.SIGINT)


class Examples(WithAtoll):
    """Each that `atoll example` lists: written, and trained as its page says."""

    def test_examples(self):
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            machine = network.machine("lyon", "10.77.0.2", {})
            self.activate(machine)
            listed = [one["name"] for one in self.read(machine, "atoll example --json")["examples"]]
            self.assertEqual(sorted(listed), sorted(path.name for path in (SOURCE / "examples/first").iterdir()))
            for name in listed:
                with self.subTest(name):
                    if name == "c" and shutil.which("cc") is None:
                        continue
                    if name == "lora" and machine.run("python3 -c 'import peft'").returncode != 0:
                        continue  # frameworks_test.py trains it where PEFT is
                    self.said(machine, f"atoll example {name} {name}")
                    page = (machine.home / name / "README.md").read_text()
                    first = re.findall(r"(?m)^    (atoll .*)$", page)
                    lines = "\n".join(line for line in first if "submit" not in line)
                    typed = machine.start(f"cd {name}\nset -e\n{lines}\n")
                    self.assertEqual(typed.wait(PATIENCE), 0, pathlib.Path(typed.log).read_text())
                    self.assertIn("completed with 2 of 2 islands", pathlib.Path(typed.log).read_text())
            self.assertEqual((machine.home / "diffusion/shapes.png").read_bytes()[:4], b"\x89PNG")

    def test_what_is_missing_is_said_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            machine = network.machine("lyon", "10.77.0.2", {})
            self.said(machine, "python3 -m venv bare")  # without the system's packages
            machine.path = f"{machine.home}/bare/bin:{machine.path}"
            for name in ("gpt", "classifier"):
                self.said(machine, f"atoll example {name} {name}")
                said = machine.run(f"cd {name} && atoll local run.toml")
                self.assertEqual(said.returncode, 1)
                self.assertIn("the Python package atoll is missing", said.stdout + said.stderr)


class Apart(Trained):
    """docs/install.md: the coordinator and the agents by commands of their own."""

    def setUp(self):
        typed = groups(block(section((SOURCE / "docs/install.md").read_text(), "Coordinator and agents apart"), "sh"))
        self.first, self.island, (self.submit,) = typed.values()

    def join(self, hub, machine, token, named):
        (machine.home / "token").write_text(self.said(hub, token))
        (line,) = self.island
        return machine.start(line.replace("lyon", named))

    def test_separate_machines(self):
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            hub, other = self.begin(network)
            init, run, token = self.first
            self.said(hub, init)
            coordinator = hub.start(run)
            self.wait(lambda: hub.run("atoll runs").returncode == 0, coordinator)
            agents = [self.join(hub, other, token, "lyon"), self.join(hub, hub, token, "paris")]
            running = [coordinator, *agents]
            islands = self.connected(hub, running)
            self.assertEqual(islands["lyon"]["address"], "tcp://10.77.0.2:4401")
            self.assertEqual(islands["paris"]["address"], f"tcp://{COORDINATOR}:4401")
            self.assertEqual(islands["lyon"]["seen_host"], "10.77.0.2")
            (hub.home / "run.toml").write_text(block(section((SOURCE / "README.md").read_text(), "A run file"), "toml"))
            following = hub.start(self.submit)
            self.wait(lambda: "round 1/" in pathlib.Path(following.log).read_text() or self.round_of(hub) >= 1, *running, following)
            run = self.read(hub, "atoll runs -o json")["runs"][0]["id"]
            self.said(hub, f"atoll cancel {run}")
            self.assertEqual(following.wait(60), 6, pathlib.Path(following.log).read_text())
            self.ends(other, agents[0])
            self.ends(hub, agents[1])
            hub.do("ip route del default")  # a network that no way leads out of
            again = hub.start(self.island[0].replace("lyon", "paris"))
            self.wait(lambda: "other islands reach it at" in pathlib.Path(again.log).read_text(), again)
            self.assertIn(f"other islands reach it at tcp://{COORDINATOR}:4401", pathlib.Path(again.log).read_text())
            self.ends(hub, again)
            self.ends(hub, coordinator)

    def round_of(self, hub):
        return max((one["round"] for one in self.read(hub, "atoll runs -o json")["runs"]), default=0)


# What the page leaves to its reader: a model whose forward pass is the loss, a schedule, data that learn something.
BUILD = """
import copy, math, sys
import torch

def cases(seed, count):
    torch.manual_seed(seed)
    features = torch.randn(count, 16)
    torch.manual_seed(7)
    teacher = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        return list(zip(features, teacher(features) * 4))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def forward(self, batch):
        features, wanted = batch
        return torch.nn.functional.mse_loss(self.body(features), wanted)

def build(settings):
    items = cases(1, 4096)
    torch.manual_seed(3)
    model = Net()
    opt = torch.optim.AdamW(model.parameters(), settings.get("learning_rate", 3e-4) * 10)
    steps = island.training["steps"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1, (step + 1) / 50) * (1 + math.cos(math.pi * min(1, step / steps))) / 2)
    return model, opt, sched, items

def validate():
    with torch.no_grad():
        return float(model(HELD_OUT))

HELD_OUT = [torch.stack(part) for part in zip(*cases(2, 512))]
"""


COMPARE = """
import json
text = open(sys.argv[1], "rb").read()
size = int.from_bytes(text[:8], "little")
read = lambda of: torch.frombuffer(bytearray(text[8 + size :][slice(*of["data_offsets"])]), dtype=torch.float32).view(of["shape"])
tensors = {name: read(of) for name, of in json.loads(text[8 : 8 + size]).items() if name != "__metadata__"}
saved, model = torch.load(sys.argv[2]), Net()
model.load_state_dict(tensors, strict=True)
print(all(torch.equal(saved[name], value) for name, value in model.state_dict().items()), validate())
"""


class OwnTrainer(Stranger):
    """docs/own-trainer.md: its program, its run file and its lines on one machine, as two would be."""

    def setUp(self):
        self.page = (SOURCE / "docs/own-trainer.md").read_text()
        self.program, self.after = re.findall(r"^```python\n(.*?)^```$", self.page, re.S | re.M)[:2]
        blocks = re.findall(r"^```sh\n(.*?)^```$", self.page, re.S | re.M)
        self.install = next(text for text in blocks if "-m venv" in text)
        self.lines = next(text for text in blocks if "coordinator init" in text)
        self.run_file = block(section(self.page, "Start it"), "toml")

    def test_two_islands_on_one_machine(self):
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            machine = network.machine("lyon", "10.77.0.2", {})
            if machine.run("python3 -c 'import torch'").returncode != 0:
                self.skipTest("/usr/bin/python3 has no PyTorch")
            shutil.copytree(SOURCE / "agent/island_link/python", machine.home / "agent/island_link/python")
            self.said(machine, self.install)
            machine.path = f"{machine.home}/island/bin:{machine.path}"
            ending = self.after[self.after.index("if island.first") :]
            (machine.home / "train.py").write_text(BUILD + self.program + ending + "print('validation', validate(), flush=True)\n")
            (machine.home / "run.toml").write_text(self.run_file)

            typed = machine.start(self.lines)
            self.assertEqual(typed.wait(PATIENCE), 0, pathlib.Path(typed.log).read_text())
            self.said(machine, "atoll export gpt --state c -o model.safetensors")
            (saved,) = machine.home.glob("**/model.pt")
            (machine.home / "compare.py").write_text(BUILD + COMPARE)
            same, together = self.said(machine, f"python3 compare.py model.safetensors {saved}").split()
            self.assertEqual(same, "True", "the saved model is not the exported one")

            alone = (machine.home / "train.py").read_text().replace("atoll.join()", "atoll.join(steps=2000)")
            (machine.home / "alone.py").write_text(alone)
            one = float(re.search(r"validation (\S+)", self.said(machine, "python3 alone.py")).group(1))
            self.assertLess(float(together), 1.1 * one, "two islands learn less than one alone in as many steps")
            print(f"validation loss of two islands {together}, of one alone {one}", file=sys.stderr)


if __name__ == "__main__":
    if reason := machines.why_not():
        print("skipped: " + reason)
        sys.exit(4)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
