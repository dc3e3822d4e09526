"""The other pages of docs and the programs of examples, as strangers_test.py does it for README: each line as it stands, on machines of their own.

strangers_pages_test.py ATOLL SOURCE: needs root for machines (machines.py) and the built-in trainer. pages_table.py says what is typed here.
Run files are the pages' and the examples', with a smaller model, and fewer steps where a run is watched to its end.
"""

import gzip
import json
import pathlib
import re
import struct
import sys
import tempfile
import textwrap
import time
import unittest

import machines
import pages_table
from strangers_test import ATOLL, COORDINATOR, PATIENCE, SOURCE, Stranger, block, section

NAME = "coordinator.example.org"
S3 = SOURCE / "build/moto/bin/python"

# What stands in for sudo and systemd: the user is root, and a service is what its unit starts, with the variables that the unit names.
SUDO = '#!/bin/sh\n[ "$1" = -u ] && shift 2\nexec "$@"\n'
SYSTEMCTL = """#!/bin/sh
[ "$1 $2" = "enable --now" ] || exit 1
unit="{source}/examples/packaging/$3.service"
set -a
for file in $(sed -n 's/^EnvironmentFile=-//p' "$unit"); do [ ! -e "$file" ] || . "$file"; done
setsid $(sed -n 's#^ExecStart=/usr/bin/##p' "$unit") >"/srv/$3.log" 2>&1 </dev/null &
"""


def smaller(run_file, steps=None):
    """The run file with a model that trains at hundreds of steps a second on one core."""
    text = re.sub(r"(?m)^(layers|width|heads|batch|sequence_length|warmup_steps|evaluate_batches|fine_clusters|max_steps_per_second)\b.*\n", "", run_file)
    if "[model]" not in text:
        text += "[model]\n"
    text = text.replace("[model]\n", "[model]\nlayers = 2\nwidth = 32\nheads = 2\n").replace("[training]\n", "[training]\nbatch = 4\n")
    if "[diffusion]" in text:
        text = text.replace("[diffusion]\n", "[diffusion]\nfine_clusters = 8\n").replace("save_every = 250", "save_every = 5")
        text = re.sub(r"router_steps = \d+", "router_steps = 10", text).replace("[training]\n", "[training]\nwarmup_steps = 1\n")
    else:
        text = text.replace("[training]\n", "[training]\nsequence_length = 32\nwarmup_steps = 10\nevaluate_batches = 4\n")
    return re.sub(r"(?m)^steps = \d+", f"steps = {steps}", text) if steps else text


def digits(folder):
    """Files as MNIST's test set has them: 256 images of 28 x 28 pixels."""
    pixels = bytes((17 * i * (label + 1) // 28) % 256 if i % 28 > label else 0 for label in range(10) for i in range(784))
    images = b"".join(pixels[784 * (n % 10) : 784 * (n % 10 + 1)] for n in range(256))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(struct.pack(">4i", 2051, 256, 28, 28) + images))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">2i", 2049, 256) + bytes(n % 10 for n in range(256))))


class Pages(Stranger):
    """One network: the coordinator's machine, which is an island too, and lyon, which is an operator's as well."""

    def typed(self, page, begins):
        return [line for line in pages_table.found_block(SOURCE, page, begins).splitlines() if line.strip()]

    def machine(self, network, name, address, names):
        machine = network.machine(name, address, names)
        # /etc and /var/lib as they are, with what this machine alone writes there.
        over = "mkdir -p /srv/text /srv/etc/u /srv/etc/w /srv/lib/u /srv/lib/w && mount -t overlay none -o lowerdir=/etc,upperdir=/srv/etc/u,workdir=/srv/etc/w /etc"
        over += " && mount -t overlay none -o lowerdir=/var/lib,upperdir=/srv/lib/u,workdir=/srv/lib/w /var/lib && mkdir -p /etc/atoll /var/lib/atoll"
        machine.do(over + f" && mount --bind '{machine.home.with_suffix('.hosts')}' /etc/hosts && cat > /srv/text/book.txt", input=self.text)
        bin = machine.home / "bin"
        bin.mkdir()
        for name, script in (("sudo", SUDO), ("systemctl", SYSTEMCTL.format(source=SOURCE))):
            (bin / name).write_text(script)
            (bin / name).chmod(0o755)
        machine.path = f"{bin}:{machine.path}"
        return machine

    def put(self, machine, path, text):
        machine.do(f"cat > '{path}'", input=text)

    def done(self, machine, line):
        return machine.run(line).returncode == 0

    def islands(self, machine, how="atoll islands -o json"):
        return sorted(one["name"] for one in (self.read(machine, how) or {"islands": []})["islands"] if one["connected"])

    def install(self, hub, lyon):
        """docs/install.md, with systemd's lines, and the settings that the page shows."""
        page = (SOURCE / "docs/install.md").read_text()
        init, start, token = self.typed("docs/install.md", "sudo -u atoll atoll coordinator init")
        (begin,) = self.typed("docs/install.md", "sudo systemctl enable --now atoll-agent")
        settings = block(section(page, "An island under systemd"), "ini")
        self.put(hub, "/etc/atoll/coordinator.toml", 'web = "127.0.0.1:4480"\nnetwork = "local"\n')
        self.said(hub, init)
        self.said(hub, start)
        self.wait(lambda: self.done(hub, f"atoll runs {self.STATE}"))
        for machine in (hub, lyon):
            self.put(machine, "/etc/atoll/token", self.said(hub, token))
            self.put(machine, "/etc/atoll/agent.toml", settings + ('allow_copy = ["s3://my-bucket/atoll"]\n' if machine is hub and self.keys else ""))
            if machine is hub and self.keys:
                self.put(machine, "/etc/atoll/agent.env", "".join(f"{key}={value}\n" for key, value in self.keys.items()))
            self.said(machine, begin)
        (lyon.home / "token").write_text(self.said(hub, f"atoll token create --role operator {self.STATE}"))
        self.said(lyon, "atoll token use --join-file token")  # the README's words
        self.wait(lambda: self.islands(lyon) == ["coordinator", "lyon"])
        self.assertIn("<html", self.said(hub, "curl -sf http://127.0.0.1:4480/").lower())
        self.assertIn("atoll_runs", self.said(hub, "curl -sf http://127.0.0.1:4480/metrics"))

    STATE = "--state /var/lib/atoll/coordinator"

    def store(self, hub):
        """An S3-compatible store on the coordinator's machine, and an owner's keys for it; None where there is none."""
        if not S3.exists():
            return None
        hub.do("mkfifo stdin")
        serving = hub.start(f"sh -c 'exec {S3} {SOURCE}/tests/s3_server.py my-bucket <> stdin'")
        said = self.wait(lambda: re.search(r"(?m)^(\d+) (\S+) (\S+)$", pathlib.Path(serving.log).read_text()), serving)
        port, access, secret = said.groups()
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "eu-west-3"}

    def page_in_a_browser(self, hub, lyon):
        """docs/web.md: on the coordinator's machine, and from another one by TLS with a viewer's token."""
        here, _ = self.typed("docs/web.md", "atoll coordinator --web 127.0.0.1:4480")
        elsewhere, token = self.typed("docs/web.md", "atoll coordinator --web 0.0.0.0:4480")
        self.said(hub, "atoll coordinator init --advertise tcp://coordinator.example.org:4400")
        for line in (here, elsewhere):
            serving = hub.start(line.split("#")[0].strip())
            self.wait(lambda: self.done(hub, "atoll runs"), serving)
            if line is here:
                self.wait(lambda: "<html" in hub.run("curl -sf http://127.0.0.1:4480/").stdout.lower(), serving)
            else:
                viewer = re.search(r"\S{30,}", self.said(hub, token))[0].split("token=")[-1]
                opened = f"curl -skLf -c jar -b jar 'https://{NAME}:4480/?token={viewer}'"
                self.wait(lambda: "<html" in lyon.run(opened).stdout.lower(), serving)
                self.assertFalse(self.done(lyon, f"curl -skf 'https://{NAME}:4480/'"))
            hub.stop(serving)
            self.assertEqual(serving.wait(60), 0, pathlib.Path(serving.log).read_text())
        hub.do("rm -rf .local")

    def run_of_the_readme(self, lyon):
        (lyon.home / "run.toml").write_text(smaller(block(section((SOURCE / "README.md").read_text(), "A run file"), "toml"), 600))
        self.assertIn("with 2 of 2 islands", self.said(lyon, "atoll submit run.toml --follow; atoll status first"))

    def examples(self, lyon):
        """Each run file of a text, on as many islands as there are."""
        for file in sorted((SOURCE / "examples").glob("*-text.toml")):
            with self.subTest(file.name):
                text = re.sub(r"(?m)^min = \d+", "min = 2", smaller(file.read_text(), 50).replace('set = "text"', 'set = "corpus"'))
                (lyon.home / file.name).write_text(re.sub(r"(?m)^inner_steps = \d+", "inner_steps = 25", text))
                name = re.search(r'^name = "(.*)"', text, re.M).group(1)
                self.said(lyon, f"atoll submit {file.name} --follow")
                self.assertIn("with 2 of 2 islands", self.said(lyon, f"atoll status {name}"))
                island = " --island lyon" if "local" in file.name else ""
                self.said(lyon, f"atoll export {name}{island} -o {file.stem}.safetensors")

    def commands(self, hub, lyon):
        """docs/commands.md: a line of each command, on the operator's machine; of those of a machine's own state there."""
        (lyon.home / "second.toml").write_text((lyon.home / "run.toml").read_text().replace('"first"', '"second"').replace("steps = 600", "steps = 100000"))
        self.said(lyon, "atoll submit second.toml")
        self.wait(lambda: self.read(lyon, "atoll status second -o json")["run"]["round"] >= 2)
        own = ("coordinator backup", "coordinator check", "agent check")
        for command, line in pages_table.COMMANDS.items():
            if isinstance(line, (pages_table.Typed, pages_table.Elsewhere)) or command == "agent check":
                continue
            with self.subTest(line):
                if command == "runs rm":
                    lyon.run("atoll wait second --timeout 1m")
                given = self.given.get(command, {})
                result = (hub if command in own else lyon).run(line.format(**given))
                self.assertIn(result.returncode, pages_table.CODES.get(command, (0,)), f"{line}\n{result.stdout}{result.stderr}")
                if command == "token create":
                    tokens = self.read(lyon, "atoll token list -o json")["tokens"]
                    self.given = {"token revoke": {"token": max(tokens, key=lambda one: one["created_unix_ms"])["id"]}}
                if command == "pause":
                    self.wait(lambda: self.read(lyon, "atoll status second -o json")["run"]["state"] == "paused")

    given = {}

    def copies(self, hub, lyon):
        """docs/copies.md: all is lost but the store; a new coordinator and islands go on, and a model comes without any of them."""
        page = (SOURCE / "docs/copies.md").read_text()
        keys, agent = self.typed("docs/copies.md", "export AWS_ACCESS_KEY_ID=")
        (again,) = self.typed("docs/copies.md", "atoll submit run.toml --restore newest")
        (restore,) = self.typed("docs/copies.md", "atoll restore s3://my-bucket/atoll")
        hub.do(f"for pid in $(pgrep -f 'atoll (agent|coordinator) --state /var/lib/atoll'); do kill -9 $pid; done; rm -rf /var/lib/atoll/* .local")
        hub.do(f"mkdir -p copies && cat > copies/run.toml", input=smaller(block(section(page, "Set up"), "toml")))
        variables = f"export AWS_ENDPOINT_URL={self.keys['AWS_ENDPOINT_URL']}; " + re.sub(
            "(AWS_[A-Z_]+)=…", lambda found: f"{found[1]}={self.keys[found[1]]}", keys
        )
        runs = []
        for line, steps in (("atoll submit run.toml", "the first"), (f"{variables}; {again}", "a new one")):
            with self.subTest(steps):
                self.said(hub, "atoll coordinator init --network local --bind tcp://127.0.0.1:4400 --advertise tcp://127.0.0.1:4400")
                coordinator = hub.start("atoll coordinator")
                self.wait(lambda: self.done(hub, "atoll runs"), coordinator)
                (hub.home / "token").write_text(self.said(hub, "atoll token create"))
                joining = hub.start(f"{variables}\nexec {agent} --join-file token\n")
                self.wait(lambda: self.islands(hub) == ["coordinator"], coordinator, joining)
                self.said(hub, f"cd copies && {line}")
                read = lambda: self.read(hub, "atoll status first -o json") or {"run": {"round": 0}}  # noqa: E731
                before = max(runs, default=0)
                self.wait(lambda: "was copied by" in hub.run("atoll logs first").stdout and read()["run"]["round"] > before, coordinator, joining)
                runs.append(read()["run"]["round"])
                self.assertGreater(runs[-1], before)
                hub.do("for pid in $(pgrep -x atoll); do kill -9 $pid; done; rm -rf .local")
                coordinator.wait(60)
                joining.wait(60)
        self.said(hub, f"{variables}; {restore}")
        self.assertGreater((hub.home / "model.safetensors").stat().st_size, 10_000)

    def rehearsals(self, hub):
        """docs/faults.md, docs/web.md and docs/diffusion.md, by `local`."""
        (faults,) = self.typed("docs/faults.md", "atoll local run.toml --data corpus=/srv/text --network local --faults")
        (far,) = self.typed("docs/faults.md", "atoll local run.toml --data corpus=/srv/text --link")
        _, shown = self.typed("docs/web.md", "atoll coordinator --web 127.0.0.1:4480")
        page = (SOURCE / "docs/faults.md").read_text()
        run = block(section((SOURCE / "README.md").read_text(), "A run file"), "toml")
        (hub.home / "run.toml").write_text(smaller(run, 180))
        (hub.home / "faults.toml").write_text(re.search(r"^```\n(\[\[fault\]\]\n.*?)^```$", page, re.S | re.M).group(1))
        self.assertIn("island-2", self.said(hub, faults))
        (hub.home / "run.toml").write_text(smaller(run, 90))
        self.said(hub, far)
        (hub.home / "run.toml").write_text(smaller(run, 3000))
        local = hub.start(shown.replace("4480", "4490"))
        self.wait(lambda: "<html" in hub.run("curl -sf http://127.0.0.1:4490/").stdout.lower(), local)
        self.assertEqual(local.wait(120), 0, pathlib.Path(local.log).read_text())

    def images(self, hub):
        folder = hub.home / "examples"
        folder.mkdir()
        digits(folder)
        for name in ("decentralized-diffusion-mnist", "monolith-diffusion-mnist"):
            (folder / f"{name}.toml").write_text(smaller((SOURCE / f"examples/{name}.toml").read_text(), 10))
        train, draw = self.typed("docs/diffusion.md", "atoll local examples/decentralized-diffusion-mnist.toml")
        self.said(hub, train)
        self.said(hub, draw)
        self.assertEqual((hub.home / "digits.png").read_bytes()[:4], b"\x89PNG")
        self.said(hub, "atoll local examples/monolith-diffusion-mnist.toml --export one && atoll sample one -o one.png")

    def test_pages(self):
        self.text = "".join(path.read_text() for path in sorted((SOURCE / "strategies").glob("*.cpp")))
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            hub = self.machine(network, "coordinator", COORDINATOR, {"127.0.1.1": f"{NAME} coordinator"})
            lyon = self.machine(network, "lyon", "10.77.0.2", {COORDINATOR: NAME})
            self.keys = self.store(hub)
            for step in (
                lambda: self.page_in_a_browser(hub, lyon),
                lambda: self.install(hub, lyon),
                lambda: self.run_of_the_readme(lyon),
                lambda: self.examples(lyon),
                lambda: self.commands(hub, lyon),
                lambda: self.rehearsals(hub),
                lambda: self.images(hub),
                lambda: self.keys and self.copies(hub, lyon),
            ):
                began = time.monotonic()
                step()
                print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)


# What a user writes below a program's loop, as docs/own-trainer.md shows it: the model as it is then.
KEEP = textwrap.dedent("""
    if island.rank == 0:
        torch.save(model.state_dict(), os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{island.configuration['run']}.{island.name}.pt"))
""")
COMPARE = """
import json, pathlib, sys
import torch
text = open(sys.argv[1], "rb").read()
size = int.from_bytes(text[:8], "little")
read = lambda of: torch.frombuffer(bytearray(text[8 + size :][slice(*of["data_offsets"])]), dtype=torch.float32).view(of["shape"])
tensors = {name: read(of) for name, of in json.loads(text[8 : 8 + size]).items() if name != "__metadata__"}
worst, kept = 0.0, torch.load(sys.argv[2])
for name, value in tensors.items():
    worst = max(worst, float((kept[name] - value).abs().max()))
print(len(tensors), worst)
"""


class Programs(Stranger):
    """examples/: each program as the trainer of two agents, whose end model is the export; of one agent it is the plain loop's, too."""

    NAMES = ("gpt", "classifier", "ddp", "lora")
    TOGETHER = ("gpt", "ddp")  # on both agents, too
    APART = {"classifier": 0.1}  # a bias before a BatchNorm has a gradient of rounding errors, which AdamW makes steps of its rate

    def prepare(self, machine, folder):
        """/srv/NAME/train.py of each, as docs/own-trainer.md has it, and the options of the agent that has them all."""
        (line,) = pages_table.found_block(SOURCE, "docs/own-trainer.md", "atoll agent --join-file token --trainer gpt=").splitlines()
        options, library = [], SOURCE / "agent/island_link/python"
        for name in self.NAMES:
            machine.do(f"mkdir -p /srv/{name} && cat > /srv/{name}/train.py", input=(SOURCE / f"examples/pytorch/{name}.py").read_text() + "\nimport os\n" + KEEP)
            machine.do(f"cp {SOURCE}/examples/pytorch/gpt_model.py /srv/{name}")
            machine.do(f"sed 's#^command = .*##' {SOURCE}/examples/pytorch/{name}.toml > {name}.toml")
            launch = "-m atoll.ranks 2 " if name == "ddp" else ""
            if name != "gpt":
                options.append(f"--trainer {name}='python3 {launch}/srv/{name}/train.py' --trainer-folder {name}=/srv/{name}")
            options.append(f"--trainer-env {name}=PYTHONPATH={library}")
        for name in ("linear", "torch_mlp"):
            machine.do(f"cp {SOURCE}/examples/own-trainer/{name}.toml .")
            program = pathlib.Path(ATOLL).parent / f"tests/atoll_{name.split('_')[0]}_trainer"
            if program.exists():
                options.append(f"--trainer {name}={program}")
        options.append(f"--trainer-env lora=BASE={machine.home}/gpt.safetensors")
        return line + " " + " ".join(options)

    def compared(self, machine, name, kept):
        shown = self.said(machine, f"python3 compare.py {name}.safetensors {kept}").split()
        self.assertGreater(int(shown[0]), 0)
        return float(shown[1])

    def submit(self, machine, name, islands):
        text = (machine.home / f"{name}.toml").read_text().replace("\nmin = 2\nmax = 2\n", f"\nmin = {islands}\nmax = {islands}\n")
        (machine.home / f"{name}-{islands}.toml").write_text(text.replace(f'\nname = "{name}"\n', f'\nname = "{name}-{islands}"\n', 1))
        self.said(machine, f"atoll submit {name}-{islands}.toml --state c")

    def ended(self, machine, name, islands):
        self.said(machine, f"atoll wait {name}-{islands} --state c --timeout 2m")
        status = self.read(machine, f"atoll status {name}-{islands} --state c -o json")
        document = {**status["run"], "islands": status["islands"]}
        self.assertEqual(document["state"], "completed")
        self.said(machine, f"atoll export {name}-{islands} -o {name}.safetensors --state c")
        return document

    def test_programs(self):
        with tempfile.TemporaryDirectory() as folder, machines.Network(folder, ATOLL) as network:
            machine = network.machine("lyon", "10.77.0.2", {})
            if machine.run("python3 -c 'import torch'").returncode != 0:
                self.skipTest("/usr/bin/python3 has no PyTorch")
            agent = self.prepare(machine, folder)
            (machine.home / "compare.py").write_text(COMPARE)
            self.said(machine, "atoll coordinator init --state c --network local")
            running = [machine.start("atoll coordinator --state c")]
            self.wait(lambda: machine.run("atoll runs --state c").returncode == 0, *running)
            for name in ("a", "b"):
                (machine.home / "token").write_text(self.said(machine, "atoll token create --state c"))
                running.append(machine.start(agent + f" --state {name} --name {name}"))
                self.wait(lambda: name in str(self.read(machine, "atoll islands --state c -o json")), *running)
            losses = {}
            for islands, names in ((1, self.NAMES), (2, self.TOGETHER)):
                for name in names:
                    if name != "lora":
                        self.submit(machine, name, islands)
                for name in names:
                    if name == "lora":  # which adapts what gpt exported
                        self.submit(machine, name, islands)
                    with self.subTest(name, islands=islands):
                        run = self.ended(machine, name, islands)
                        kept = machine.do(f"ls /srv/{name}/{run['id']}.*").split()
                        self.assertEqual(len(kept), islands)
                        for model in kept:
                            self.assertEqual(self.compared(machine, name, model), 0, "the model after the loop is not the exported one")
                        if islands == 1:
                            losses[name] = run["outer_loss"]
                            self.assertLess(self.alone(machine, name), self.APART.get(name, 1e-4), "one island is not the plain loop")
                        else:
                            self.assertLess(run["outer_loss"], 1.1 * losses[name], "two islands learn less than one in as many steps")
            for name in ("linear", "torch_mlp"):
                if f"--trainer {name}=" in agent:
                    with self.subTest(name):
                        self.submit(machine, name, 2)
                        run = self.ended(machine, name, 2)
                        if name == "torch_mlp":  # neither has held-out data, and the other says no loss at all
                            for island in run["islands"]:
                                self.assertLess(island["training_loss"], 0.2)

    def alone(self, machine, name):
        """How far the same program, started without an agent, is from the export of its run on one island."""
        launch = "-m atoll.ranks 2 " if name == "ddp" else ""
        steps = int(re.search(r"(?m)^steps = (\d+)", (machine.home / f"{name}.toml").read_text()).group(1))
        plain = re.sub(r'"steps": \d+', f'"steps": {steps}', machine.do(f"cat /srv/{name}/train.py"))
        self.assertIn(f"steps={steps})" if name != "gpt" else f'"steps": {steps}', plain)
        machine.do(f"mkdir -p /srv/{name}/alone && cp /srv/{name}/*.py /srv/{name}/alone && cat > /srv/{name}/alone/train.py", input=plain)
        base = f"BASE={machine.home}/gpt.safetensors TEXT=/srv/{name}/train.py"
        at = f"cd /srv/{name}/alone && {base} PYTHONPATH={SOURCE}/agent/island_link/python ATOLL_TRAINER_LIBRARY={pathlib.Path(ATOLL).parent}/libatoll_trainer.so"
        self.said(machine, f"{at} python3 {launch}train.py")
        return self.compared(machine, name, f"/srv/{name}/alone/alone.alone.pt")


if __name__ == "__main__":
    if reason := machines.why_not():
        print("skipped: " + reason)
        sys.exit(4)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
