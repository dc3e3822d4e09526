"""The Python package and the plain trainer against an agent's end of the island link. Exit status 4: nothing can be tested here.

    own_test.py LIBRARY.so [ATOLL LINEAR]      what is missing (NumPy, PyTorch) is said, and its tests are left out
"""

import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from islands import (
    ATOLL, HAS_TORCH, HERE, LAUNCHES, LINEAR, PATIENCE, PYTHON, SOURCE, Clusters, command_of, descendants, loop, needs_jax, needs_torch, saved, tensors_of,
)  # fmt: skip

import numpy
from counted_tokens import CountedTokens  # noqa: F401
from fake_agent import FakeAgent
from held import Held  # noqa: F401
from pieces import Pieces  # noqa: F401
from saves import Saves  # noqa: F401
from true_loops import TrueLoops
from without_agent import WithoutAgent  # noqa: F401


class Loops(unittest.TestCase):
    def test_numpy(self):
        with FakeAgent(loop("numpy")) as agent:
            agent.lay_out(fragments=2)
            self.assertEqual(agent.manifest["parameters"][1], {"name": "b", "shape": [2, 2], "block": 0})
            said = agent.round(1, 4, alpha=0.5)
            self.assertEqual([(m["type"], m["step"], m["position"]) for m in said[:2]], [("published", 4, 12)] * 2)
            self.assertEqual((said[0]["tokens"], said[0]["steps"], said[0]["loss"]), (24, 4, 0.5))
            self.assertEqual(said[2]["validation_loss"], 1.5)
            self.assertEqual(agent.metrics, {"accuracy": 0.25, "perplexity": 4.5})  # of the steps, and of the evaluation
            # w = 1 - 4 · 0.1; the result is the half of it, of which and of w it takes the mean
            numpy.testing.assert_allclose(agent.parameters()[:3], 0.6 * 0.75, rtol=1e-6)
            self.assertEqual(agent.stop(), 0, agent.text())

    def test_good_enough_and_too_many_numbers(self):
        with FakeAgent(loop("enough")) as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=5, publish=[], merge=[])
            self.assertEqual(agent.expect("enough")["why"], "accuracy 0.9 after step 2")
            failed = agent.expect("failed")
            self.assertIn("33 metrics are given, at most 32 are taken", failed["why"])

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

    def test_what_a_pytorch_program_looks_for_is_named(self):
        from atoll import Alone, NumpyIsland
        from atoll._numpy import OF_TORCH

        island = NumpyIsland(Alone({}), {})
        with self.assertRaisesRegex(AttributeError, "no attribute 'train'; .* a PyTorch program has it of atoll.torch.join"):
            island.train
        with self.assertRaisesRegex(AttributeError, "no attribute 'tain'$"):
            island.tain
        self.assertEqual([name for name in OF_TORCH if name in dir(NumpyIsland)], [])

    def test_types_that_float32_cannot_carry_and_steps_without_samples(self):
        from atoll import Alone, NumpyIsland
        from atoll._exchange import ExchangeIsland, flatten_plain, rebuild_plain

        for kind in ("complex64", "int64", "int32", "bool"):
            arrays = {"w": numpy.zeros(2, numpy.float32), "odd": numpy.zeros(2, kind)}
            for island in (NumpyIsland(Alone({}), {}), ExchangeIsland(Alone({}), {}, flatten_plain, rebuild_plain)):
                with self.assertRaisesRegex(ValueError, f"parameter 'odd' has type {kind}, which float32 cannot carry"):
                    island.start(arrays)
        for kind in ("float16", "float64"):  # rounded where it is exchanged, and still what the program gave
            given = numpy.full(2, 1 / 3, kind)
            for island in (NumpyIsland(Alone({}), {}), ExchangeIsland(Alone({}), {}, flatten_plain, rebuild_plain)):
                island.start({"w": given.copy()})
                out = numpy.zeros(2, numpy.float32)
                island._write(0, out)
                island._merge(0, out, 0.5)
                after = (island._parameters if isinstance(island, NumpyIsland) else island._arrays)[0]
                self.assertEqual((after.dtype, out[0]), (given.dtype, numpy.float32(given[0])))
                numpy.testing.assert_allclose(after, given, rtol=1e-7)
        island = NumpyIsland(Alone({}), {})
        island.start({"w": numpy.zeros(2)})
        self.assertTrue(island.wants_step())
        with self.assertRaisesRegex(TypeError, "say how many samples this step took"):
            island.done(1.0)

    @needs_torch
    def test_a_gradient_that_no_step_has_used_does_not_spoil_a_contribution(self):
        with FakeAgent(loop("leaves_out")) as agent:
            agent.lay_out()
            said = agent.round(1, 2)[0]
            self.assertEqual((said["nonfinite"], said["norm"], said["loss"]), (False, None, 0.5))
            self.assertEqual(agent.stop(), 0, agent.text())

    def test_an_exception_is_told(self):
        with FakeAgent(loop("raises")) as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=1, publish=[], merge=[])
            self.assertEqual(agent.expect("failed")["why"], "ValueError: the labels are missing and this is how they are made")
            self.assertNotEqual(agent.process.wait(60), 0)

    def test_a_step_is_answered_once(self):
        with FakeAgent(loop("twice")) as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=2, publish=[], merge=[])
            failed = agent.expect("failed")
            for why in ("the order in hand has not been answered", "no order is in hand: each is answered once", "island.done() without a step"):
                self.assertIn(why, failed["why"])
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
class TorchLoops(TrueLoops, unittest.TestCase):
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
        for framework in ("huggingface", "accelerate", "lightning"):
            with self.subTest(framework), FakeAgent(loop(framework)) as agent:
                agent.lay_out()
                said = agent.round(1, 3)
                self.assertEqual((said[0]["steps"], said[0]["position"]), (3, 18))
                self.assertEqual(said[0].get("loss") is None, framework == "huggingface")  # whose own data and loss nobody has seen
                self.assertEqual(agent.stop(), 0, agent.text())

    def test_parameters_of_half_precision_are_float32_in_the_arena(self):
        import torch

        import atoll.torch
        from atoll import _library as library
        from atoll import Alone

        class Agent(Alone):
            def declare(self, parameters, description):
                return numpy.zeros(4, numpy.float32), [library.Entry(0, 0, 0, 2), library.Entry(1, 0, 2, 2)]

        model = torch.nn.ParameterList([torch.tensor([1.5, -2.0]).bfloat16(), torch.tensor([0.25, 3.0]).half()])
        island = atoll.torch.TorchIsland(Agent({}), {})
        island.start(model)
        island._carry_out(library.Order(library.WRITE))
        self.assertEqual(island._arena.tolist(), [1.5, -2, 0.25, 3])
        island._arena[:] = [1.001, 0, 1.25, 1]  # 1.001 is no bfloat16
        island._carry_out(library.Order(library.MERGE, alpha=0.5))
        self.assertEqual([parameter.tolist() for parameter in model], [[1.25, -1], [0.75, 2]])  # mixed in float32, then rounded
        self.assertEqual([parameter.dtype for parameter in model], [torch.bfloat16, torch.float16])
        island._carry_out(library.Order(library.MERGE))
        self.assertEqual([parameter.tolist() for parameter in model], [[1, 0], [1.25, 1]])

    def test_what_is_shared(self):
        import torch

        import atoll.torch
        from atoll import Alone

        class Told(Alone):
            def declare(self, parameters, description):
                self.parameters, self.description = parameters, description
                return super().declare(parameters, description)

        model = torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 5, bias=False))
        model[2].weight = model[0].weight  # tied
        told = Told({})
        atoll.torch.TorchIsland(told, {}).start(model, buffers=True)
        self.assertEqual([name for name, *_ in told.parameters], ["0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"])
        self.assertEqual([buffer for *_, buffer in told.parameters], [0, 0, 0, 1, 1])
        atoll.torch.TorchIsland(told, {}).start(model, buffers="one")
        self.assertEqual([buffer for *_, buffer in told.parameters], [0, 0, 0, 2, 2])
        with self.assertRaisesRegex(ValueError, "'median'; it can be 'mean', 'one' or False"):
            atoll.torch.TorchIsland(told, {}).start(model, buffers="median")
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
        self.assertEqual(island.exchange(params, 1.0, samples=1)["w"].shape, (3,))


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

    @needs_torch
    def test_the_same_model_has_the_built_in_trainer_s_losses(self):
        module = pathlib.Path(ATOLL).parent / "atoll_trainer.so"
        if not module.exists():
            self.skipTest("the built-in trainer is not built")
        losses = []
        for own in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                # A fixed text: how far two roundings of one model part in 60 steps depends on the text.
                pathlib.Path(folder, "text").write_bytes(8 * (SOURCE / "LICENSE").read_bytes())
                path = pathlib.Path(folder, "run.toml")
                sizes = "layers = 2\nwidth = 64\nheads = 4\n"
                model = "[trainer]\nname = 'twin'\ntokens_per_sample = 64\n[trainer.settings]\n" if own else "[model]\n"
                path.write_text(
                    f"[run]\nname = 'twin'\n{model}{sizes}[data]\nfiles = ['text']\n[training]\nsteps = 60\nbatch = 8\nsequence_length = 64\n"
                    "learning_rate = 3e-3\nwarmup_steps = 10\nevaluate_every = 1\n[strategy]\nname = 'diloco'\ninner_steps = 10\n[islands]\nmin = 2\nmax = 2\n"
                )
                options = ["--trainer", f"twin={PYTHON} '{HERE}/twin.py'"] if own else []
                document = self.completed(self.start(folder, str(path), *options))
                losses.append([loss for _, loss in document["run"]["losses"]])
        self.assertEqual(len(losses[0]), 7)
        numpy.testing.assert_allclose(*losses, atol=1e-3)
        self.assertLess(losses[0][-1], losses[0][0] - 1)

    @needs_torch
    def test_buffers_are_the_mean_of_all_or_what_one_island_has(self):
        share = 1 - 0.9**20  # of a batch's mean in the running mean after 20 steps
        for islands in (2, 3):
            for buffers in ("mean", "one"):
                with tempfile.TemporaryDirectory() as folder:
                    command = f"{PYTHON} '{HERE}/loops.py' norm"
                    self.completed(self.local(folder, command, {"buffers": buffers}, 20, islands=islands))
                    mean = tensors_of(folder + "/model.safetensors")["running_mean"]
                    expected = [2 * part + 1 for part in range(islands)] if buffers == "one" else [islands]
                    nearest = min(expected, key=lambda each: abs(each * share - mean[0]))
                    numpy.testing.assert_allclose(mean, [nearest * share] * 2, rtol=1e-5)

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

    def test_an_agent_that_waits_for_a_program_to_join_costs_nothing_however_long(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.local(folder, "attach", {}, 20, islands=1, trainer="start_within = '1s'\n")
            try:
                socket = pathlib.Path(folder, "state/island-1/trainers/own")
                self.wait_until(socket.exists)
                (agent,) = [pid for pid in descendants(process.pid) if command_of(pid)[1:2] == ["agent"]]
                ticks = lambda: sum(int(field) for field in pathlib.Path(f"/proc/{agent}/stat").read_text().rsplit(")")[1].split()[11:13])  # noqa: E731
                time.sleep(1.5)  # past the time that it has to start once it has joined
                before = ticks()
                time.sleep(3)
                self.assertLess((ticks() - before) / os.sysconf("SC_CLK_TCK"), 0.5)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)

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
        self.ends_alike(LINEAR)

    def test_libtorch_in_cpp_is_killed_and_ends_with_the_bytes_of_one_that_was_not(self):
        program = pathlib.Path(LINEAR).parent / "atoll_torch_trainer"
        if not program.exists():
            self.skipTest("LibTorch is not installed")
        self.ends_alike(str(program))

    def ends_alike(self, program):
        digests = []
        for killed in ("nobody", "a trainer", "an agent"):
            # One or two seconds for a round: its checkpoint is on the disk before the next one's end, also where others write to it.
            pace = {"nobody": 0.0, "a trainer": 10.0, "an agent": 5.0}[killed]
            with tempfile.TemporaryDirectory() as folder:
                faults = pathlib.Path(folder, "faults.toml")
                faults.write_text("[[fault]]\nisland = 'island-1'\nround = 4\nphase = 'before-commit'\ndo = 'kill'\nfor = '1s'\n")
                options = ("--faults", str(faults)) if killed == "an agent" else ()
                process = self.local(folder, program, {"rate": 0.02}, 100, pace=pace, options=options)
                if killed == "a trainer":
                    both = lambda: all(saved(folder, 2, island) for island in ("island-1", "island-2"))  # noqa: E731
                    self.kill_one(process, program, both)
                document = self.completed(process)
                self.assertEqual(document["run"]["state"], "completed")
                logs = "".join(path.read_text() for path in pathlib.Path(folder).glob("state/*.log"))
                self.assertEqual("was killed by signal 9" in logs, killed == "a trainer")
                self.assertEqual([fault["struck"] for fault in document.get("faults") or []], [True] * (killed == "an agent"))
                digests.append(document["run"]["digest"])
            self.assertEqual(len(set(digests)), 1, f"{killed}: {digests}\n{logs}")

    def test_a_trainer_s_own_numbers_are_shown_and_its_own_end_ends_the_run_for_all(self):
        with tempfile.TemporaryDirectory() as folder:
            document = self.completed(self.local(folder, f"{PYTHON} '{HERE}/loops.py' until_good", {}, 100_000))
            run, islands = document["run"], document["islands"]
            self.assertEqual((run["state"], run["parameters"]), ("completed", 15))
            self.assertIn("island-", run["reason"])
            self.assertIn("says that the model is good enough: accuracy 0.75", run["reason"])
            self.assertIn("with 2 of 2 islands", run["reason"])
            self.assertLess(run["round"], 100)
            self.assertEqual(sorted(island["metrics"]["accuracy"] for island in islands), [0.25, 0.75])
            self.assertTrue(0.25 < run["metrics"]["accuracy"] < 0.75)  # weighted by what each has trained on
            self.assertTrue(os.path.exists(folder + "/model.safetensors"))
            ledger = sqlite3.connect(folder + "/state/coordinator/ledger.db")
            told = [json.loads(fields) for (fields,) in ledger.execute("SELECT fields FROM events WHERE kind='own_metrics'")]
            self.assertEqual({event["metric.accuracy"] for event in told}, {0.25, 0.75})
            self.assertGreaterEqual(len(told), 2 * (run["round"] - 1))

    def test_islands_that_train_the_same_are_named_whatever_the_strategy(self):
        for strategy in ("name = 'diloco'\ninner_steps = 10\ncodec = 'int8'", "name = 'noloco'\ninner_steps = 10", "name = 'data-parallel'"):
            for name, alike in (("numpy", True), ("until_good", True), ("torch", False)):
                if (name == "torch" and not HAS_TORCH) or (name == "until_good" and "data-parallel" in strategy):
                    continue
                with self.subTest(f"{strategy} {name}"), tempfile.TemporaryDirectory() as folder:
                    document = self.completed(self.local(folder, f"{PYTHON} '{HERE}/loops.py' {name}", {}, 30, strategy))
                    told = [warning["text"] for warning in document["warnings"] if warning["kind"] == "islands_alike"]
                    self.assertEqual(len(told), alike, told)
                    words = "islands island-1 and island-2 train on the same data in the same order"
                    self.assertEqual(words in document["run"]["reason"], alike)
                    self.assertTrue(all(words in text and "island.part" in text for text in told), told)

    def test_steps_that_change_nothing_are_told_after_three_rounds(self):
        for late, told in ((10_000, 1), (20, 0)):
            with self.subTest(late=late), tempfile.TemporaryDirectory() as folder:
                document = self.completed(self.local(folder, f"{PYTHON} '{HERE}/loops.py' copies", {"late": late}, 50, islands=1))
                texts = [warning["text"] for warning in document["warnings"] if warning["kind"] == "nothing_changed"]
                self.assertEqual(len(texts), told, texts)
                words = "changed no parameter in 3 contributions, up to round 3: what its program trains is not what it declared"
                self.assertTrue(all(words in text for text in texts), texts)

    def test_a_program_of_one_s_own_writes_another_format(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.local(folder, f"{PYTHON} '{HERE}/loops.py' numpy", {}, 100_000, pace=50.0)
            try:
                self.wait_until(lambda: saved(folder, 1))
                code = "import json, sys; f = open(sys.argv[1], 'rb'); h = json.loads(f.read(int.from_bytes(f.read(8), 'little'))); "
                code += "open(sys.argv[2], 'w').write(' '.join(sorted(set(h) - {'__metadata__'})))"
                export = [ATOLL, "export", "own", "-o", folder + "/names.txt", "--state", folder + "/state/coordinator", "--through"]
                said = subprocess.run([*export, f'{PYTHON} -c "{code}"'], capture_output=True, text=True)
                self.assertEqual((said.returncode, pathlib.Path(folder, "names.txt").read_text()), (0, "b w"), said.stderr)
                for command, why in (("false", "ended with status 1"), ("/no/such/program", "there is no program"), ("true", "wrote nothing")):
                    os.path.exists(folder + "/names.txt") and os.unlink(folder + "/names.txt")
                    said = subprocess.run([*export, command], capture_output=True, text=True)
                    self.assertNotEqual(said.returncode, 0)
                    self.assertIn(why, said.stderr)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)

    def test_plan_starts_a_trainer_once_to_learn_what_it_declares(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.toml")
            path.write_text(
                "[run]\nname = 'x'\n[trainer]\nname = 'x'\n[training]\nsteps = 100000\n[strategy]\nname = 'diloco'\ninner_steps = 5\n"
                "[islands]\nmin = 2\nmax = 2\n"
            )
            command = [ATOLL, "plan", str(path), "-o", "json", "--agent-ns", "1,1", "--island", "a=tried,50mbit", "--island", "b=2s,50mbit"]
            said = subprocess.run([*command, "--trainer", f"x={PYTHON} '{HERE}/loops.py' until_good"], capture_output=True, text=True)
            self.assertEqual(said.returncode, 0, said.stderr)
            document = json.loads(said.stdout)
            self.assertEqual(document["parameters"], 15)
            steps = {island["name"]: island["step_seconds"] for island in document["islands"]}
            self.assertTrue(0.01 <= steps["a"] < 0.1, steps)
            self.assertEqual(steps["b"], 2)
            broken = subprocess.run([*command, "--trainer", f"x={PYTHON} -c 'raise SystemExit(3)'"], capture_output=True, text=True)
            self.assertEqual(broken.returncode, 1, broken.stderr)
            self.assertIn("the trial of trainer x: the trainer ended with status 3", broken.stderr)

    def test_an_island_without_the_trainer_is_not_taken_and_status_has_the_line_to_type(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.local(folder, LINEAR, {}, 100_000, pace=20.0)
            try:
                state = ["--state", folder + "/state/coordinator"]
                self.wait_until(lambda: saved(folder, 1))
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
        "unready": "was not ready within 1.5 s ([trainer].start_within), when it was compiling for ever",
        "version": "speaks version 1 of the island link, this agent version 2",
        "ranks": "it has 3 ranks, and the run asks for 1 ([trainer].ranks)",
        "none": "the trainer declares no parameters",
        "many": "'manifest' has 4888943 bytes; at most 1048576 can be sent",
        "flood": "was not ready within 15.0 s ([trainer].start_within)",  # such a message is not taken
        "twice": "the trainer declares the parameter 'w' twice",
        "empty": "the trainer's parameter 'w' has no elements or more than 2^40",
        "huge": "the trainer's parameter 'w' has no elements or more than 2^40",
        "large": "the model needs an arena of 4.3 GB, [run].arena_limit is 67.1 MB",
        "permanent": "the trainer failed: there is no such model",
        "talks": "the trainer failed: there is no such model",  # and its log stays small
        "module": "No module named 'no_such_module'",
        "done_twice": "island.done() without a step",
        "same_words": "the trainer keeps failing (it ended 3 times with the same words)",
        "same_status": "the trainer keeps failing (it ended 3 times with the same words)",
        "nan": "was not finite",
        "early": "though nobody asked it to",
        "prints": "though nobody asked it to",
        "scribbles": "the trainer failed: it wrote into fragment 0 of the arena out of turn",
    }
    WITHIN = {"silent": "1500ms", "unready": "1500ms", "flood": "15s"}
    ONCE = ("version", "ranks", "none", "twice", "empty", "huge", "large", "permanent", "talks", "module", "done_twice")  # of no use to try again

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
                f"start_within = '{self.WITHIN.get(kind, '60s')}'\n[trainer.settings]\nsize = 3\nsamples = 2\nrate = 0.01\n"
                "[training]\nsteps = 20\n[strategy]\nname = 'diloco'\ninner_steps = 5\n[islands]\nmin = 1\nmax = 1\n"
            )
            process = self.start(folder, str(path), "--islands", "1", "--check-arena", "--trainer", f"bad={PYTHON} '{HERE}/bad_trainer.py' {kind}")
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
                    self.assertNotIn("no sign of life", text)
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
                first, second = "'w' (3) on island-1", "'w' (4) on island-2"
                either = [f"parameter 0 is {first}, and {second}", f"parameter 0 is {second}, and {first}"]
                process.wait(PATIENCE)  # with one island refused there are too few
                log = pathlib.Path(folder, "state/coordinator.log").read_text()
                refusals = [line for line in log.splitlines() if "cannot take part in run" in line]
                self.assertEqual(len(refusals), 1, log)
                self.assertTrue(any(text in refusals[0] for text in either), log)
                self.assertNotIn("started again", log)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)

    def test_another_program_is_refused_once_where_all_must_have_the_same_code(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"size": 3, "samples": 2, "rate": 0.01}
            process = self.local(folder, f"{PYTHON} '{HERE}/bad_trainer.py' other_code", settings, 20, trainer="same_code = true\n")
            try:
                said = lambda: json.dumps(self.status(folder).get("warnings", []), ensure_ascii=False)  # noqa: E731
                self.wait_until(lambda: "(version " in said())
                self.assertEqual(said().count("(version "), 2)
                self.assertNotIn("hardware", said())
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

    def example(self, folder, name, *options, pace=8, kind="pytorch"):
        text = (SOURCE / f"examples/{kind}/{name}.toml").read_text()
        path = pathlib.Path(folder, "run.toml")
        path.write_text(text.replace("[training]\n", f"[training]\nmax_steps_per_second = {pace}\n"))
        return self.goes_on(folder, self.start(folder, str(path), *options), f"{name}.py", "the trainer ")

    def program(self, name, launch="", folder="pytorch"):
        return f"{name}={PYTHON} {launch}'{SOURCE}/examples/{folder}/{name}.py'"

    @needs_jax
    def test_jax(self):
        with tempfile.TemporaryDirectory() as folder:
            header = self.example(folder, "fit", "--trainer", self.program("fit", folder="jax"), kind="jax")
        self.assertEqual(header["hidden.w"]["shape"], [4, 32])

    def test_classifier(self):
        with tempfile.TemporaryDirectory() as folder:
            header = self.example(folder, "classifier", "--trainer", self.program("classifier"))
        self.assertIn("1.running_mean", header)

    def test_ddp(self):
        with tempfile.TemporaryDirectory() as folder:
            launch = "-m atoll.ranks 2 " if LAUNCHES else "-m torch.distributed.run --nproc_per_node 2 "
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
