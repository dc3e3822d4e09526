"""The Python package and the plain trainer against an agent's end of the island link. Exit status 4: nothing can be tested here.

    own_test.py LIBRARY.so [ATOLL LINEAR]      what is missing (NumPy, PyTorch) is said, and its tests are left out
"""

import difflib
import importlib.util
import json
import os
import pathlib
import signal
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

import numpy  # noqa: E402
from fake_agent import FakeAgent  # noqa: E402

PATIENCE = 60  # seconds
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (apt-get install python3-torch)")
LAUNCHES = sys.version_info >= (3, 11) and HAS_TORCH and importlib.import_module("torch").__version__ < "2"  # their torchrun does not start
needs_jax = unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")


def descendants(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            pass
    return found + [each for child in found for each in descendants(child)]


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def loop(name, ranks=1):
    launch = [PYTHON, str(HERE / "launch.py"), str(ranks)] if ranks > 1 else [PYTHON]
    return [*launch, str(HERE / "loops.py"), name]


class Loops(unittest.TestCase):
    def test_numpy(self):
        with FakeAgent(loop("numpy")) as agent:
            agent.lay_out(fragments=2)
            self.assertEqual(agent.manifest["parameters"][1], {"name": "b", "shape": [2, 2], "block": 0})
            said = agent.round(1, 4, alpha=0.5)
            self.assertEqual([(m["type"], m["step"], m["position"]) for m in said[:2]], [("published", 4, 12)] * 2)
            self.assertEqual((said[0]["tokens"], said[0]["steps"], said[0]["loss"]), (24, 4, 0.5))
            self.assertEqual(said[2]["validation_loss"], 1.5)
            # w = 1 - 4 · 0.1; the result is the half of it, of which and of w it takes the mean
            numpy.testing.assert_allclose(agent.parameters()[:3], 0.6 * 0.75, rtol=1e-6)
            self.assertEqual(agent.stop(), 0, agent.text())

    def test_gradients(self):
        with FakeAgent(loop("numpy"), payload="gradient") as agent:
            agent.lay_out()
            for step in (1, 2):
                said = agent.round(step, step, gradient=True)
                self.assertEqual((said[0]["step"], said[0]["position"], said[1]["step"]), (step, 3 * step, step))
            numpy.testing.assert_allclose(agent.parameters()[:3], 1 - 2 * 0.1 * 0.5, rtol=1e-6)
            self.assertEqual(agent.stop(), 0, agent.text())

    def test_turned_round(self):
        with FakeAgent(loop("exchange")) as agent:
            agent.lay_out()
            self.assertEqual([p["name"] for p in agent.manifest["parameters"]], ["b", "layer.w"])
            agent.round(1, 4)
            numpy.testing.assert_allclose(agent.parameters(), [2, 2, 0.3, 0.3, 0.3], rtol=1e-6)
            self.assertEqual(agent.stop(), 0, agent.text())

    def test_an_exception_is_told(self):
        with FakeAgent(loop("raises")) as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=1, publish=[], merge=[])
            self.assertEqual(agent.expect("failed")["why"], "ValueError: the labels are missing")
            self.assertNotEqual(agent.process.wait(60), 0)

    def test_a_step_is_answered_once(self):
        with FakeAgent(loop("twice")) as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=2, publish=[], merge=[])
            failed = agent.expect("failed")
            self.assertIn("island.done() without a step", failed["why"])
            self.assertTrue(failed["permanent"])

    def test_plain_trainer(self):
        settings = {"size": 5, "samples": 4, "rate": 0.05}
        for payload in ("parameters", "gradient"):
            with self.subTest(payload), FakeAgent([PYTHON, str(HERE / "plain_trainer.py")], settings, payload) as agent:
                agent.lay_out()
                first = agent.round(1, 1, gradient=payload == "gradient")[0]["loss"]
                for step in range(2, 40):
                    last = agent.round(step, step, gradient=payload == "gradient")[0]["loss"]
                self.assertLess(last, first)
                self.assertEqual(agent.stop(), 0, agent.text())


@needs_torch
class TorchLoops(unittest.TestCase):
    def rounds(self, ranks=1, save=None, resume=None, first=1, count=2):
        with FakeAgent(loop("torch", ranks), resume=resume) as agent:
            agent.lay_out(fragments=2)
            self.assertEqual(agent.hello["ranks"], ranks)
            said = [agent.round(number, 4 * number, save=save) for number in range(first, first + count)]
            parameters = agent.parameters()
            self.assertEqual(agent.stop(), 0, agent.text())
        return said, parameters

    def test_goes_on_bit_for_bit(self):
        folder = os.path.join(tempfile.mkdtemp(), "trainer")
        _, whole = self.rounds(count=3)
        said, _ = self.rounds(count=2, save=folder)
        self.assertTrue(said[-1][-1]["saved"])
        self.assertEqual(sorted(os.listdir(folder)), ["atoll-counts.json", "state.pt"])
        _, resumed = self.rounds(first=3, count=1, resume={"directory": folder, "step": 8, "position": 48})
        numpy.testing.assert_array_equal(whole, resumed)

    def test_two_ranks_are_one(self):
        folder = os.path.join(tempfile.mkdtemp(), "trainer")
        _, alone = self.rounds(count=2)
        _, both = self.rounds(ranks=2, count=2, save=folder)
        numpy.testing.assert_allclose(alone, both, atol=1e-6)
        _, whole = self.rounds(ranks=2, count=3)
        _, resumed = self.rounds(ranks=2, first=3, count=1, resume={"directory": folder, "step": 8, "position": 48})
        numpy.testing.assert_array_equal(whole, resumed)

    def test_callbacks_against_small_fakes_of_their_frameworks(self):
        for framework in ("huggingface", "lightning"):
            with self.subTest(framework), FakeAgent(loop(framework)) as agent:
                agent.lay_out()
                said = agent.round(1, 3)
                self.assertEqual((said[0]["steps"], said[0]["position"]), (3, 18))
                self.assertIsNotNone(said[0]["loss"])
                self.assertEqual(agent.stop(), 0, agent.text())

    def test_what_is_shared(self):
        import torch

        import atoll.torch
        from atoll._island import Alone

        class Told(Alone):
            def declare(self, parameters, description):
                self.parameters, self.description = parameters, description
                return super().declare(parameters, description)

        model = torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 5, bias=False))
        model[2].weight = model[0].weight  # tied
        told = Told({})
        atoll.torch.TorchIsland(told, {}).start(model, buffers=True)
        self.assertEqual([name for name, _, _ in told.parameters], ["0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"])
        self.assertIsNone(told.description)
        atoll.torch.TorchIsland(told, {}).start(model, synchronise=lambda name, _: name.startswith("1."))
        self.assertIn("the digest", told.description)
        with self.assertRaisesRegex(ValueError, "no parameter is to be synchronised"):
            atoll.torch.TorchIsland(told, {}).start(model, synchronise=lambda name, _: False)

    @needs_jax
    def test_jax(self):
        import jax

        import atoll.jax

        island = atoll.jax.join()
        params, _ = island.start({"w": jax.numpy.ones(3)})
        self.assertTrue(island.running)
        self.assertEqual(island.exchange(params, 1.0)["w"].shape, (3,))


class Clusters(unittest.TestCase):
    """What two islands of the real executable are asked and looked at with."""

    def local(self, folder, command, settings, steps, strategy="name = 'diloco'\ninner_steps = 10", pace=0.0):
        pathlib.Path(folder, "text").write_text("x" * 10000)
        path = os.path.join(folder, "run.toml")
        given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        pathlib.Path(path).write_text(
            "[run]\nname = 'own'\n[trainer]\nname = 'own'\ntokens_per_sample = 64\n[trainer.settings]\n" + given + "[data]\nfiles = ['text']\n"
            f"[training]\nsteps = {steps}\nmax_steps_per_second = {pace}\n[strategy]\n{strategy}\n"
            "[islands]\nmin = 2\nmax = 2\n[checkpoint]\nevery_rounds = 1\n"
        )
        return self.start(folder, path, "--trainer", f"own={command}")

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
        """kill -9 of the first process below `process` that runs `program` (none: LINEAR), once `after` holds."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            words = (lambda pid: command_of(pid)[1:2]) if program else (lambda pid: command_of(pid)[:1])
            victims = [pid for pid in descendants(process.pid) if any(word.endswith(program or LINEAR) for word in words(pid))]
            if victims and after():
                os.kill(victims[0], signal.SIGKILL)
                return
            time.sleep(0.1)
        self.fail("nobody was there to be killed")

    def killed_in_the_middle(self, command, program, settings, steps, pace):
        with tempfile.TemporaryDirectory() as folder:
            return self.goes_on(folder, self.local(folder, command, settings, steps, pace=pace), program)

    def goes_on(self, folder, process, program, said="was killed by signal 9"):
        """kill -9 of a trainer in the middle of a run, which completes; the header of the exported model."""
        self.kill_one(process, program, lambda: any(pathlib.Path(folder).glob("state/island-1/runs/*/checkpoints/2")))
        self.assertEqual(self.completed(process)["run"]["state"], "completed")
        self.assertIn(said, "".join(path.read_text() for path in pathlib.Path(folder).glob("state/*.log")))
        with open(folder + "/model.safetensors", "rb") as file:
            return json.loads(file.read(int.from_bytes(file.read(8), "little")))


@unittest.skipUnless(ATOLL, "the executable is not given")
class Islands(Clusters):
    """Two islands of the real executable."""

    @needs_torch
    def test_gpt_is_killed_and_goes_on(self):
        gpt = SOURCE / "examples/pytorch/gpt.py"
        with tempfile.TemporaryDirectory() as folder:
            header = self.goes_on(folder, self.local(folder, f"{PYTHON} '{gpt}'", {"layers": 2}, 60, pace=4.0), "gpt.py")
            for command in (["generate", "--model", folder + "/model.safetensors"], ["sample", folder + "/model.safetensors", "-o", folder + "/x.png"]):
                said = subprocess.run([ATOLL, *command], capture_output=True, text=True)
                self.assertEqual((said.returncode, "not Atoll's own" in said.stderr), (2, True), said.stderr)
        self.assertEqual(header["h.1.mlp.2.weight"]["shape"], [64, 256])
        self.assertEqual(header["__metadata__"]["atoll.trainer"], "own")

    def test_a_program_that_its_user_started_joins_run_after_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/attached.toml"
            text = (
                "[run]\nname = 'attached'\n[trainer]\nname = 'x'\n[training]\nsteps = 20\n"
                "[strategy]\nname = 'local'\ninner_steps = 5\n[islands]\nmin = 1\nmax = 1\n"
            )
            attached = f"atoll.join = lambda settings: join(settings, path='{folder}/state/island-1/trainers/x')"
            code = f"import sys; sys.path.insert(0, '{HERE}'); import atoll, loops; join = atoll.join; {attached}; loops.with_numpy()"
            socket = pathlib.Path(folder, "state/island-1/trainers/x")
            for name in ("first", "second"):
                pathlib.Path(path).write_text(text.replace("attached", name))
                process = self.start(folder, path, "--trainer", "x=attach")
                self.wait_until(socket.exists)
                self.assertEqual(socket.stat().st_mode & 0o777, 0o600)
                program = subprocess.Popen([PYTHON, "-c", code])
                self.assertEqual(self.completed(process)["run"]["state"], "completed")
                self.assertEqual(program.wait(60), 0)

    def test_plain_trainer_is_killed_and_goes_on(self):
        settings = {"size": 8, "samples": 4, "rate": 0.01, "pause": 0.03}
        self.killed_in_the_middle(f"{PYTHON} '{HERE}/plain_trainer.py'", "plain_trainer.py", settings, 100, 20.0)

    def keeper(self, script):
        return subprocess.Popen([ATOLL, "trainer", "--", "/bin/sh", "-c", script])

    def test_a_command_ends_as_it_ends_and_with_all_that_it_started(self):
        self.assertEqual(self.keeper("exit 3").wait(60), 3)
        self.assertEqual(self.keeper("kill -SEGV $$").wait(60), -signal.SIGSEGV)
        with tempfile.TemporaryDirectory() as folder:
            for how in ("ends", "loses its parent"):
                with self.subTest(how):
                    mark = pathlib.Path(folder, how.split()[0])
                    tail = "sleep 0.5" if how == "ends" else "sleep 1000"
                    script = f"setsid sleep 1000 & echo $! > {mark}.new; mv {mark}.new {mark}; {tail}"
                    keeper = [ATOLL, "trainer", "--", "/bin/sh", "-c", script]
                    code = f"import subprocess, time; subprocess.Popen({keeper!r}); time.sleep(1000)"
                    parent = subprocess.Popen([PYTHON, "-c", code])
                    self.wait_until(mark.exists)
                    daemon = int(mark.read_text())
                    if how != "ends":
                        parent.kill()
                    self.wait_until(lambda: command_of(daemon)[:1] != ["sleep"])
                    parent.kill()
                    parent.wait()

    def test_c_is_killed_and_ends_with_the_bytes_of_one_that_was_not(self):
        digests = []
        for disturbed in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                process = self.local(folder, LINEAR, {"rate": 0.02}, 100, pace=30.0 if disturbed else 0.0)
                if disturbed:
                    self.kill_one(process, None, lambda: any(pathlib.Path(folder).glob("state/island-1/runs/*/checkpoints/2")))
                run = self.completed(process)["run"]
                self.assertEqual(run["state"], "completed")
                logs = "".join(path.read_text() for path in pathlib.Path(folder).glob("state/*.log"))
                self.assertEqual("was killed by signal 9" in logs, disturbed)
                digests.append(run["digest"])
        self.assertEqual(*digests)

    def test_an_island_without_the_trainer_is_not_taken_and_status_has_the_line_to_type(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.local(folder, LINEAR, {}, 100_000, pace=20.0)
            try:
                state = ["--state", folder + "/state/coordinator"]
                self.wait_until(lambda: any(pathlib.Path(folder).glob("state/island-1/runs/*/checkpoints/1")))
                other = pathlib.Path(folder, "other.toml")
                other.write_text(pathlib.Path(folder, "run.toml").read_text().replace("'own'", "'other'"))
                run = subprocess.run([ATOLL, "submit", str(other), "-q", *state], capture_output=True, text=True, check=True).stdout.strip()
                told = "has no trainer 'other': start its agent with --trainer other='COMMAND'"
                self.wait_until(lambda: told in subprocess.run([ATOLL, "status", run, *state], capture_output=True, text=True).stdout)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)


@unittest.skipUnless(ATOLL, "the executable is not given")
class BadTrainers(Clusters):
    """Whatever a trainer does wrong is one clear line in `status`, and the islands stay."""

    WHY = {
        "silent": "was not ready within 1.5 s ([trainer].start_within)",
        "version": "speaks version 1 of the island link, this agent version 2",
        "ranks": "it has 3 ranks, and the run asks for 1 ([trainer].ranks)",
        "none": "the trainer declares no parameters",
        "many": "'manifest' has 4888943 bytes; at most 1048576 can be sent",
        "twice": "the trainer declares the parameter 'w' twice",
        "empty": "the trainer's parameter 'w' has no elements or more than 2^40",
        "huge": "the trainer's parameter 'w' has no elements or more than 2^40",
        "large": "the model needs an arena of 4.3 GB, [run].arena_limit is 67.1 MB",
        "permanent": "the trainer failed: there is no such model",
        "nan": "was not finite",
        "early": "though nobody asked it to",
        "prints": "though nobody asked it to",
    }
    ONCE = ("version", "ranks", "none", "twice", "empty", "huge", "large", "permanent")  # of no use to try again

    def status(self, folder):
        command = [ATOLL, "status", "--state", folder + "/state/coordinator", "-o", "json"]
        said = subprocess.run(command, capture_output=True, text=True)
        return json.loads(said.stdout) if said.returncode == 0 else {}

    def said_in(self, document):
        run = document.get("run", {})
        texts = [warning.get("text", "") for warning in document.get("warnings", [])]
        return [run.get("reason") or "", *texts]

    def bad(self, kind):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.toml")
            path.write_text(
                "[run]\nname = 'bad'\narena_limit = '64MiB'\n[trainer]\nname = 'bad'\nranks = 1\n"
                f"start_within = '{'1500ms' if kind == 'silent' else '60s'}'\n[trainer.settings]\nsize = 3\nsamples = 2\nrate = 0.01\n"
                "[training]\nsteps = 20\n[strategy]\nname = 'diloco'\ninner_steps = 5\n[islands]\nmin = 1\nmax = 1\n"
            )
            process = self.start(folder, str(path), "--islands", "1", "--trainer", f"bad={PYTHON} '{HERE}/bad_trainer.py' {kind}")
            try:
                document, deadline = {}, time.monotonic() + PATIENCE
                while not any(self.WHY[kind] in text for text in self.said_in(document)):
                    self.assertLess(time.monotonic(), deadline, f"{kind}: {json.dumps(document)}")
                    ended = process.poll() is not None
                    document = json.loads(process.communicate()[0]) if ended else self.status(folder)
                    self.assertFalse(ended and not document, kind)
                    time.sleep(0 if ended else 0.1)
                for text in self.said_in(document):
                    self.assertNotIn("\n", text)
                if kind in self.ONCE:
                    self.assertNotIn("started again", json.dumps(document), kind)
                log = pathlib.Path(folder, "state/island-1.log")
                self.assertLess(log.stat().st_size, 2_000_000, kind)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)
                process.stdout.close()
                process.stderr.close()

    def test_another_model_is_refused_once_with_the_first_difference(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.local(folder, f"{PYTHON} '{HERE}/bad_trainer.py' differs", {"size": 3, "samples": 2, "rate": 0.01}, 20)
            try:
                here, there = "parameter 0 is 'w' (4) here, and 'w' (3) in the run", "parameter 0 is 'w' (3) here, and 'w' (4) in the run"
                self.wait_until(lambda: any(text in json.dumps(self.status(folder), ensure_ascii=False) for text in (here, there)))
                self.assertNotIn("started again", json.dumps(self.status(folder)))
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)

    def test_one_clear_line(self):
        for kind in self.WHY:
            with self.subTest(kind):
                self.bad(kind)


@unittest.skipUnless(ATOLL and HAS_TORCH, "the executable is not given, or PyTorch is not installed")
class Examples(Clusters):
    """The scripts that people copy, as they stand, on two islands, with a kill -9 in the middle."""

    def example(self, folder, name, *options, pace=8):
        text = (SOURCE / f"examples/pytorch/{name}.toml").read_text()
        path = pathlib.Path(folder, "run.toml")
        path.write_text(text.replace("[training]\n", f"[training]\nmax_steps_per_second = {pace}\n"))
        return self.goes_on(folder, self.start(folder, str(path), *options), f"{name}.py", "the trainer ")

    def program(self, name, launch=""):
        return f"{name}={PYTHON} {launch}'{SOURCE}/examples/pytorch/{name}.py'"

    def test_classifier(self):
        with tempfile.TemporaryDirectory() as folder:
            header = self.example(folder, "classifier", "--trainer", self.program("classifier"))
        self.assertIn("1.running_mean", header)

    def test_ddp(self):
        with tempfile.TemporaryDirectory() as folder:
            launch = f"'{HERE}/launch.py' 2 " if LAUNCHES else "-m torch.distributed.run --nproc_per_node 2 "
            header = self.example(folder, "ddp", "--trainer", self.program("ddp", launch))
        self.assertEqual(header["h.0.mlp.0.weight"]["shape"], [128, 32])

    def test_lora_adapts_what_the_first_example_exported(self):
        with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(base, "run.toml")
            path.write_text((SOURCE / "examples/pytorch/gpt.toml").read_text().replace("steps = 60", "steps = 20"))
            self.completed(self.start(base, str(path), "--trainer", self.program("gpt")))
            header = self.example(folder, "lora", "--trainer", self.program("lora"), "--trainer-env", f"lora=BASE={base}/model.safetensors")
        header.pop("__metadata__")
        self.assertEqual({name.rsplit(".", 1)[1] for name in header}, {"lora_a", "lora_b"})


class Pieces(unittest.TestCase):
    def test_blocks_follow_the_names(self):
        from atoll._island import blocks_of

        names = ["wte.weight", "h.0.a", "h.0.b", "h.10.a", "norm.weight"]
        self.assertEqual(blocks_of(names), [-1, 0, 0, 1, 2])
        self.assertEqual(blocks_of(["w", "b"]), [0, 0])

    def test_parts_are_disjoint_and_whole_and_ordered_by_position(self):
        from atoll import Alone, Dataset, Island

        parts = [Dataset(range(11), Island(Alone({"data": {"part": part, "parts": 3}}), {})) for part in range(3)]
        self.assertEqual(sorted(sum((part.indices(0, len(part)) for part in parts), [])), list(range(11)))
        whole = parts[0].indices(0, 20)
        self.assertEqual(parts[0].indices(7, 5), whole[7:12])
        self.assertNotEqual(whole[:4], whole[4:8])

    def test_alone(self):
        code = "import atoll; i = atoll.join({'size': 3, 'rate': 1}); print(i.settings, i.part, i.parts)"
        environment = {key: value for key, value in os.environ.items() if key != "ATOLL_ISLAND_LINK"}
        said = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, "{'size': 3, 'rate': 1} 0 1\n")

    def test_the_page_is_enough_in_250_lines(self):
        self.assertLessEqual(len((HERE / "plain_trainer.py").read_text().splitlines()), 250)

    def test_a_script_changes_by_ten_lines(self):
        alone, island = [(SOURCE / "examples/pytorch" / name).read_text().splitlines() for name in ("gpt_alone.py", "gpt.py")]
        added = [line for line in difflib.ndiff(alone[1:], island[1:]) if line.startswith("+ ")]
        self.assertLessEqual(len(added), 10)

    def test_pip_installs_without_a_network(self):
        with tempfile.TemporaryDirectory() as target:
            sys.path.insert(0, str(PACKAGE))
            import build_backend

            wheel = build_backend.build_wheel(target)
            command = [PYTHON, "-m", "pip", "install", "--no-index", "--no-deps", "-q", "--target", target + "/site", f"{target}/{wheel}"]
            if importlib.util.find_spec("pip") is None:
                self.skipTest("pip is not installed")
            subprocess.run(command, check=True, env={**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"})
            self.assertTrue(os.path.exists(target + "/site/atoll/torch.py"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
