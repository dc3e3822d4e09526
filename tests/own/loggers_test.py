"""The loggers of atoll.loggers: W&B offline, MLflow's file store and TensorBoard, each the real one, and those that fail or hang. See environment.py.

Arguments as own_test.py's.
"""

import environment

environment.enter("torch", "wandb", "mlflow", "tensorboard")

import contextlib
import io
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest
from unittest import mock

from islands import ATOLL, HERE, PYTHON, Clusters, saved

from atoll import loggers

STEPS = 60
OPEN = "tensorboard/*/*/events*", "wandb/offline-run-*/*.wandb", "mlflow/*/*/metrics/loss"
os.environ.update(WANDB_MODE="offline", MLFLOW_ALLOW_FILE_STORE="true")


class Beside(unittest.TestCase):
    """What a logger does is no matter of the loop's."""

    def trained(self, opens, steps=40, **limits):
        from true_loops import optimizer_of

        from atoll.torch import Alone, TorchIsland

        island, (model, opt), errors = TorchIsland(Alone({"training": {"steps": steps}}, every=1), {}), optimizer_of(), io.StringIO()
        with contextlib.ExitStack() as patched:
            for name, value in limits.items():
                patched.callback(setattr, loggers, name, getattr(loggers, name))
                setattr(loggers, name, value)
            with contextlib.redirect_stderr(errors):
                loggers.log_to(island, opens, "x")
                with island.train(model, opt, evaluate=lambda: (0.25, {"half": 0.5})):
                    for batch in island.batches(range(10**6), samples=1):
                        opt.step()
                        island.log(loss=float(batch), twice=2.0 * batch)
        self.assertTrue(island.complete)
        return [line for line in errors.getvalue().splitlines() if "the logger" in line]

    def test_each_step_has_its_numbers(self):
        seen, closed = [], []
        said = self.trained(lambda: (lambda step, numbers: seen.append((step, numbers)), lambda: closed.append(True)), steps=3)
        expected = [(step, {"loss": step - 1.0, "twice": 2 * step - 2.0}) for step in (1, 2, 3)]
        held_out = [(step, {"held_out_loss": 0.25, "held_out_half": 0.5}) for step in (1, 2, 3)]
        self.assertEqual(seen, [one for both in zip(expected, held_out) for one in both])
        self.assertEqual((said, closed), ([], [True]))

    def test_one_that_fails_is_named_once(self):
        def raises(*given):
            raise OSError("no such server\nand more")

        for opens, why in (
            (raises, r"x has failed \(OSError: no such server\); the training goes on"),
            (lambda: (raises, raises), r"x has failed \(OSError: no such server\); the training goes on"),
            (lambda: True, r"x has failed \(TypeError: cannot unpack"),
            (lambda: __import__("not_there_at_all"), r"x has failed \(ModuleNotFoundError: No module named 'not_there_at_all'\)"),
        ):
            said = self.trained(opens)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], why)

    def test_an_experiment_that_another_island_has_just_made_is_taken(self):
        """As where two islands begin at the same moment, and neither has found it."""
        from mlflow.tracking import MlflowClient

        with tempfile.TemporaryDirectory() as folder:
            client = MlflowClient(folder)
            made = client.create_experiment("line")
            with mock.patch.object(client, "get_experiment_by_name", side_effect=[None, client.get_experiment_by_name("line")]):
                self.assertEqual(loggers._experiment_of(client, "line"), made)

    def test_one_that_fails_for_a_while_has_what_comes_later(self):
        seen = []

        def write(step, numbers):
            if step < 3:
                raise OSError("it starts")
            seen.append(step)

        self.assertEqual(len(self.trained(lambda: (write, lambda: None), steps=5)), 1)
        self.assertEqual(seen, [3, 3, 4, 4, 5, 5])

    def test_one_that_blocks_is_not_waited_for(self):
        blocks = threading.Event()
        self.addCleanup(blocks.set)
        seen = []
        for opens in (blocks.wait, lambda: (lambda *given: blocks.wait(), lambda: None), lambda: (lambda *given: seen.append(1), blocks.wait)):
            said = self.trained(opens, _ROOM=7, _PATIENCE=0.2)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], "x (does not keep up: what comes while 7 reports wait for it is left out|has not ended within 0 s)")

    def test_a_server_that_hangs_is_not_waited_for(self):
        """MLflow's and W&B's own clients, at a socket that takes connections and never answers; as a program of its own, which ends."""
        for name, more in (("mlflow", {}), ("wandb", {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40, "WANDB_INIT_TIMEOUT": "2"})):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, socket.socket() as hangs:
                hangs.bind(("127.0.0.1", 0))
                hangs.listen(64)
                at = f"http://127.0.0.1:{hangs.getsockname()[1]}"
                command = [PYTHON, str(HERE / "loggers_loop.py"), "20", folder, name]
                environment = {**os.environ, **more, "MLFLOW_TRACKING_URI": at, "WANDB_BASE_URL": at}
                done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=100)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, f"the logger {name} has (not ended within 1 s|failed .*timed out)")

    def test_one_that_is_not_installed(self):
        from unittest import mock

        from true_loops import island_of

        with mock.patch.dict("sys.modules", {"wandb": None}), contextlib.redirect_stderr(io.StringIO()) as errors:
            island = island_of()
            loggers.wandb(island, project="x")
            island._listeners.pop().end()
        self.assertRegex(errors.getvalue(), "the logger wandb has failed .ModuleNotFoundError: import of wandb halted")


def records_of(content):
    """Of a log in LevelDB's format, behind W&B's own head of seven bytes: pieces in blocks of 32 KiB, each with checksum, length and kind."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 0x8000 - place % 0x8000 < 7:
            place += 0x8000 - place % 0x8000  # the block's rest
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4) and place <= len(content):  # a whole record, or its last piece; the last one of a program that was killed may be cut
            yield record
            record = b""


def of_wandb(folder):
    """{run: [{name: value} of each call]} of all files that W&B has written offline."""
    from wandb.proto import wandb_internal_pb2

    found = {}
    for path in sorted(pathlib.Path(folder).glob("wandb/offline-run-*/*.wandb")):
        for data in records_of(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                run = record.run
                found.setdefault((run.run_group, run.run_id), [])
            if record.WhichOneof("record_type") == "history":
                items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                found[(run.run_group, run.run_id)].append(items)
    return found


def of_tensorboard(folder):
    """{step: loss}"""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {each.step: each.value for each in events.Scalars("loss")}, events.Tags()["scalars"]


ANSWERS = """#!/bin/sh
[ -e "$0.gone" ] && { echo '{"error":{"code":"unavailable","why":"cannot reach the coordinator"},"schema":1}' >&2; exit 3; }
case "$*" in *--state?s*) ;; *) exit 2 ;; esac
cat "$0.$1"
"""


class Rounds(unittest.TestCase):
    """`python -m atoll.loggers RUN`, with a program that answers as `atoll` does."""

    def setUp(self):
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)
        self.answers(3, None)
        (self.folder / "atoll").write_text(ANSWERS)
        (self.folder / "atoll").chmod(0o755)

    def tearDown(self):
        self.kept.cleanup()

    def answers(self, rounds, ended):
        run = {"id": "r-1", "name": "line", "strategy": "diloco", "ended_unix_ms": ended}
        (self.folder / "atoll.status").write_text(json.dumps({"run": run, "islands": [{"name": "lyon"}, {"name": "oslo"}]}))
        rows = [{"round": at, "step": 10 * at, "time_unix_ms": 1795955557000 + at, "outer_loss": 1 / (1 + at), "norm": None, "tokens": 20} for at in range(rounds)]
        (self.folder / "atoll.metrics").write_text("".join(json.dumps(row) + "\n" for row in rows))
        events = [{"kind": "own_metrics", "round": at, "fields": {"metric.tokens": 7.0, "metric.half": 0.5, "round": at}} for at in range(rounds)]
        (self.folder / "atoll.events").write_text("".join(json.dumps(one) + "\n" for one in events + [{"kind": "commit", "round": 1, "fields": {}}]))

    def command(self, to, *more):
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.Popen([PYTHON, "-m", "atoll.loggers", "line", "--to", to, "--state", "s", *more], env=environment, cwd=self.folder, stderr=subprocess.PIPE, text=True)

    def logged(self, to, *more, code=0):
        process = self.command(to, *more)
        said = process.communicate(timeout=100)[1]
        self.assertEqual(process.returncode, code, said)
        return said

    EXPECTED = {10 * at: 1 / (1 + at) for at in range(5)}

    def twice(self, to, *more):
        """As far as the run has come, then to its end, which nothing is new behind."""
        self.assertEqual(self.logged(to, *more), "lyon: to round 2\noslo: to round 2\n")
        self.answers(5, 1)
        self.assertEqual(self.logged(to, *more, "--follow"), "lyon: to round 4\noslo: to round 4\n")
        self.assertEqual(self.logged(to, *more), "")

    def test_wandb_offline_has_each_round_once(self):
        self.twice("wandb", "--project", "p")
        found = of_wandb(self.folder)
        self.assertEqual(set(found), {("r-1", "r-1-lyon-rounds"), ("r-1", "r-1-oslo-rounds")})
        for rows in found.values():
            self.assertEqual([(row["_step"], row["outer_loss"]) for row in rows], list(self.EXPECTED.items()))
            self.assertEqual({(row["tokens"], row["own_tokens"], row["half"], "norm" in row) for row in rows}, {(20, 7, 0.5, False)})

    def test_mlflow_has_each_round_once(self):
        from mlflow.tracking import MlflowClient

        self.twice("mlflow", "--at", "ml", "--project", "p")
        client = MlflowClient(str(self.folder / "ml"))
        runs = client.search_runs([client.get_experiment_by_name("p").experiment_id])
        self.assertEqual({(run.data.tags["atoll.run"], run.data.tags["atoll.island"], run.info.status) for run in runs}, {("r-1", name, "FINISHED") for name in ("lyon", "oslo")})
        for run in runs:
            self.assertEqual([(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "outer_loss")], list(self.EXPECTED.items()))

    def test_tensorboard_has_each_round_once(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.twice("tensorboard", "--at", "tb")
        for name in ("lyon", "oslo"):
            events = EventAccumulator(str(self.folder / "tb/r-1" / name))
            events.Reload()
            self.assertEqual([each.step for each in events.Scalars("outer_loss")], list(self.EXPECTED))

    def test_what_is_wrong_is_one_line(self):
        gone = self.folder / "atoll.gone"
        gone.touch()
        self.assertEqual(self.logged("mlflow", "--at", "ml", code=3), "atoll: cannot reach the coordinator\n")
        process = self.command("mlflow", "--at", "ml", "--follow")
        self.assertEqual(process.stderr.readline(), "atoll: cannot reach the coordinator; it is asked again\n")
        self.answers(5, 1)
        gone.unlink()
        self.assertEqual((process.communicate(timeout=60)[1], process.returncode), ("lyon: to round 4\noslo: to round 4\n", 0))
        self.assertRegex(self.logged("tensorboard", "--at", "atoll", code=1), r"^atoll: tensorboard has failed \(.*Error: .*\); call this again, and it goes on behind what is logged\n$")
        self.assertIn("--to tensorboard needs --at FOLDER", self.logged("tensorboard", code=2))

    def test_one_that_does_not_answer_is_named(self):
        import time
        from unittest import mock

        from atoll import _rounds

        with mock.patch.object(_rounds, "_SLOW", 0.05), contextlib.redirect_stderr(io.StringIO()) as errors:
            patient = _rounds._Patient("mlflow")
            patient(time.sleep, 0.3)
            patient(time.sleep, 0.3)
            with mock.patch.dict("sys.modules", {"nothing": None}), self.assertRaisesRegex(_rounds._Failed, "nothing is not installed in this Python"):
                patient(__import__, "nothing")
        self.assertEqual(errors.getvalue(), "atoll: mlflow has not answered for 0 s, and is waited for; the run goes on without it\n")


@unittest.skipUnless(ATOLL, "the executable is not given")
class OnIslands(Clusters):
    def test_every_logger_has_each_island_s_steps_once_after_a_kill(self):
        from mlflow.tracking import MlflowClient

        with tempfile.TemporaryDirectory() as folder:
            given = {"folder": folder, "gate": "goes on"}  # before step 36, for the kill
            process = self.local(folder, f"{PYTHON} '{HERE}/loggers_loop.py'", given, STEPS)
            self.kill_one(process, "loggers_loop.py", lambda: saved(folder, 2) and self.have_reports(folder))
            pathlib.Path(folder, "goes on").touch()
            self.assertEqual(self.completed(process)["run"]["state"], "completed")
            log = "".join(path.read_text() for path in pathlib.Path(folder).glob("state/*.log"))
            self.assertIn("the logger that fails has failed (SystemExit: it is broken); the training goes on", log)
            run = self.run_of(folder)
            client = MlflowClient(f"{folder}/mlflow")
            stored = {each.data.tags["atoll.island"]: each for each in client.search_runs([client.get_experiment_by_name("line").experiment_id])}
            self.assertEqual(set(stored), {"island-1", "island-2"})
            wandb = of_wandb(folder)
            self.assertEqual(set(wandb), {(run, f"{run}-{name}") for name in stored})
            whole = 0
            for name, each in stored.items():
                wanted = self.losses_of(folder, name)
                self.assertEqual(set(wanted), set(range(1, STEPS + 1)))
                self.assertEqual((each.data.tags["atoll.run"], each.info.status), (run, "FINISHED"))
                loss = {one.step: one.value for one in sorted(client.get_metric_history(each.info.run_id, "loss"), key=lambda one: one.timestamp)}
                whole += self.close(loss, wanted)
                self.assertEqual(each.data.params["batch"], "6")
                self.assertEqual(each.data.metrics["held_out_half"], 0.5)
                whole += self.close({one["step"]: one["loss"] for one in wandb[(run, f"{run}-{name}")] if "loss" in one}, wanted, STEPS)  # its own process is killed, too, and keeps what it writes
                loss, names = of_tensorboard(f"{folder}/tensorboard/{run}/{name}")
                whole += self.close(loss, wanted)
                self.assertEqual(sorted(names), ["doubled", "held_out_half", "held_out_loss", "loss"])
            self.assertGreaterEqual(whole, len(OPEN))  # those of the island that was not killed
            self.rounds_of_the_coordinator(folder, run, client)

    def rounds_of_the_coordinator(self, folder, run, client):
        """The same run's, without a line in the program."""
        state = f"{folder}/state/coordinator"
        coordinator = subprocess.Popen([ATOLL, "coordinator", "--state", state], stderr=subprocess.DEVNULL)
        try:
            ask = lambda *words: subprocess.run([ATOLL, *words, "--state", state], capture_output=True, text=True)  # noqa: E731
            self.wait_until(lambda: ask("runs").returncode == 0)
            environment = {**os.environ, "PATH": f"{pathlib.Path(ATOLL).parent}:{os.environ['PATH']}"}
            command = [PYTHON, "-m", "atoll.loggers", run, "--to", "mlflow", "--at", f"{folder}/mlflow", "--project", "rounds", "--state", state]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            for kept in client.search_runs([client.get_experiment_by_name("rounds").experiment_id]):
                said = [json.loads(line) for line in ask("metrics", run, "-o", "jsonl", "--island", kept.data.tags["atoll.island"]).stdout.splitlines()]
                wanted = [(row["step"], row["training_loss"]) for row in said if row["training_loss"] is not None]
                self.assertEqual([(one.step, one.value) for one in client.get_metric_history(kept.info.run_id, "training_loss")], wanted)
                self.assertGreater(len(wanted), 3)
                self.assertEqual(kept.data.metrics["half"], 0.5)
        finally:
            coordinator.terminate()
            coordinator.wait()

    def have_reports(self, folder):
        """Every logger is open on both islands, and the slowest has three rounds."""
        found = [list(pathlib.Path(folder).glob(each)) for each in OPEN]
        return all(len(paths) == 2 for paths in found) and all(len(path.read_text().splitlines()) >= 30 for path in found[-1])

    def close(self, found, wanted, lost=20):
        """What the killed program had not given to the logger yet is lost: a report or two."""
        self.assertLessEqual(set(found), set(wanted))
        missing = sorted(set(wanted) - set(found))
        self.assertLessEqual(len(missing), lost, missing)
        self.assertIn(STEPS, found)
        for step, loss in found.items():
            self.assertAlmostEqual(loss, wanted[step], places=5, msg=str(step))
        return not missing

    def losses_of(self, folder, name):
        """As the island did them last."""
        return dict(json.loads(line) for line in pathlib.Path(folder, name + ".losses").read_text().splitlines() if line.endswith("]"))

    def run_of(self, folder):
        return next(path.name for path in pathlib.Path(folder, "state/island-1/runs").iterdir())


if __name__ == "__main__":
    unittest.main(verbosity=2)
