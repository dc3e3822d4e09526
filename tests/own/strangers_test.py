"""What the README shows, as a stranger does it: each line as it stands, on machines of their own, with the run file as it stands.

strangers_test.py ATOLL SOURCE: needs root for machines (machines.py) and the built-in trainer.
"""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

import machines

ATOLL, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
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


class Readme(unittest.TestCase):
    def setUp(self):
        self.page = (SOURCE / "README.md").read_text()
        typed = groups(block(section(self.page, "On separate machines"), "sh"))
        self.first = next(lines for where, lines in typed.items() if "the others can reach" in where)
        self.island = next(lines for where, lines in typed.items() if "each island" in where)
        self.use = next(lines for where, lines in typed.items() if where.startswith("# on the coordinator's machine"))

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

    def begin(self, network):
        """A coordinator's machine on which its own name leads to 127.0.1.1, as Debian's installer leaves it, and another one."""
        name = "coordinator.example.org"
        hub = network.machine("coordinator", COORDINATOR, {"127.0.1.1": f"{name} coordinator"})
        other = network.machine("lyon", "10.77.0.2", {COORDINATOR: name})
        text = "".join(path.read_text() for path in sorted((SOURCE / "strategies").glob("*.cpp")))
        for machine in (hub, other):
            machine.do("mkdir /srv/text && cat > /srv/text/book.txt", input=text)
        init, run, token = self.first
        self.said(hub, init)
        coordinator = hub.start(run)
        self.wait(lambda: hub.run("atoll runs").returncode == 0, coordinator)
        return hub, other, coordinator, token

    def join(self, hub, machine, token, named):
        (machine.home / "token").write_text(self.said(hub, token))
        (line,) = self.island
        return machine.start(line.replace("lyon", named))

    def test_separate_machines(self):
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            hub, other, coordinator, token = self.begin(network)
            agents = [self.join(hub, other, token, "lyon"), self.join(hub, hub, token, "paris")]
            running = [coordinator, *agents]
            self.wait(lambda: len([one for one in self.read(hub, "atoll islands -o json")["islands"] if one["connected"]]) == 2, *running)
            islands = {one["name"]: one for one in self.read(hub, "atoll islands -o json")["islands"]}
            self.assertEqual(islands["lyon"]["address"], "tcp://10.77.0.2:4401")
            self.assertEqual(islands["paris"]["address"], f"tcp://{COORDINATOR}:4401")
            self.assertEqual(islands["lyon"]["seen_host"], "10.77.0.2")

            (hub.home / "run.toml").write_text(block(section(self.page, "A run file"), "toml"))
            submit, status, export, generate = self.use
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
            watching.send_signal(signal.SIGINT)
            watching.wait(60)
            shares = self.read(hub, f"atoll data {run} -o json")
            self.assertTrue(shares["proof"]["holds"], json.dumps(shares))
            self.said(hub, export.replace("RUN", run))
            self.assertGreater((hub.home / "model.safetensors").stat().st_size, 1_000_000)
            self.assertTrue(self.said(hub, generate).strip())

            self.said(hub, f"atoll cancel {run}")
            self.assertEqual(following.wait(60), 6, pathlib.Path(following.log).read_text())
            for agent in agents:
                self.assertIsNone(agent.poll())
                agent.send_signal(signal.SIGTERM)
                self.assertEqual(agent.wait(60), 0, pathlib.Path(agent.log).read_text())
            coordinator.send_signal(signal.SIGTERM)
            self.assertEqual(coordinator.wait(60), 0, pathlib.Path(coordinator.log).read_text())


if __name__ == "__main__":
    if reason := machines.why_not():
        print("skipped: " + reason)
        sys.exit(4)
    unittest.main(argv=[sys.argv[0]])
