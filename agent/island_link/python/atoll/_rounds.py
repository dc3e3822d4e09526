"""`python -m atoll.loggers RUN --to wandb|mlflow|tensorboard`: what the coordinator knows of each round, in the loggers that people have, without a line
in the training program. A process of its own that asks the program `atoll`: the run does not hear of it, whatever the logger does."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

from ._program import anywhere

_BETWEEN_QUESTIONS = 5.0  # seconds
_SLOW = 30.0  # seconds that a logger takes before it is said for whom this waits
_BATCH = 20  # rounds in one request to MLflow, which takes 1000 numbers
_COUNTS = "round", "step", "time_unix_ms"
_UNREACHABLE = 3  # atoll's exit code


class Row(NamedTuple):
    """A round of an island. numbers: losses and what else the coordinator has, and the program's own."""

    round: int
    step: int
    time: float  # seconds since 1970
    numbers: Mapping[str, float]


class _Failed(Exception):
    def __init__(self, why: str, code: int = 1):
        super().__init__(why)
        self.code = code


def _why(error: str) -> str:
    """What `atoll` says is wrong, which is JSON where its answer is."""
    try:
        return str(json.loads(error.splitlines()[-1])["error"]["why"])
    except (ValueError, LookupError, TypeError):
        return error.strip()


class _Coordinator:
    """What `atoll` says of one run."""

    def __init__(self, program: str, run: str, options: Sequence[str]):
        self._program, self._run, self._options = program, run, options

    def _ask(self, verb: str, *more: str) -> str:
        said = subprocess.run([self._program, verb, self._run, *more, *self._options], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if said.returncode:
            raise _Failed(_why(said.stderr) or f"atoll {verb} has ended with {said.returncode}", said.returncode)
        return said.stdout

    def status(self) -> Any:
        document = json.loads(self._ask("status", "--json"))
        self._run = document["run"]["id"]  # no other of that name is taken later
        return document

    def rows(self, island: str, after: int) -> list[Row]:
        """Of the rounds behind `after`."""
        found = [json.loads(line) for line in self._ask("metrics", "-o", "jsonl", "--island", island).splitlines()]
        new = [row for row in found if row["round"] > after]
        own = self._own(island, new[0]["time_unix_ms"]) if new else {}
        return [Row(row["round"], row["step"], row["time_unix_ms"] / 1000, _numbers(row, own.get(row["round"], {}))) for row in new]

    def _own(self, island: str, since_ms: int) -> dict[int, dict[str, float]]:
        """The program's own numbers, as far as the tape has them."""
        seconds = int(max(0.0, time.time() - since_ms / 1000)) + 60
        found: dict[int, dict[str, float]] = {}
        for line in self._ask("events", "--json", "--island", island, "--since", f"{seconds}s").splitlines():
            event = json.loads(line)
            if event.get("kind") == "own_metrics":
                numbers = {name[7:]: value for name, value in event["fields"].items() if name.startswith("metric.")}
                found.setdefault(event["round"], {}).update(numbers)
        return found


def _numbers(row: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, float]:
    known = {name: float(value) for name, value in row.items() if name not in _COUNTS and isinstance(value, (int, float))}
    return {**known, **{f"own_{name}" if name in row else name: float(value) for name, value in own.items() if isinstance(value, (int, float))}}


# ---- the loggers


class Sink:
    """An island's run in a logger, which is opened with the first round that it lacks."""

    def __init__(self, run: Mapping[str, Any], island: str, at: str, project: str):
        self._run, self._island, self._at, self._project = run, island, at, project
        self._write: Optional[Callable[[Sequence[Row]], Any]] = None
        self._close: Callable[[], Any] = lambda: None

    def done(self) -> int:
        """The last round that it has; -1: none."""
        raise NotImplementedError

    def _open(self) -> tuple[Callable[[Sequence[Row]], Any], Callable[[], Any]]:
        """What writes rows, and what ends it."""
        raise NotImplementedError

    def write(self, rows: Sequence[Row]) -> None:
        if self._write is None:
            self._write, self._close = self._open()
        self._write(rows)

    def close(self) -> None:
        self._close()


class _Marked(Sink):
    """A file beside what the logger writes says the last round: it cannot be asked."""

    KIND = ""  # the folder of these files

    def __init__(self, run: Mapping[str, Any], island: str, at: str, project: str):
        super().__init__(run, island, at, project)
        self._mark = os.path.join(at, self.KIND, f"{run['id']}-{island}.last")

    def done(self) -> int:
        try:
            with open(self._mark) as file:
                return int(file.read())
        except FileNotFoundError:
            return -1
        except ValueError:
            raise _Failed(f"{self._mark} should say the last round that is logged, and does not: remove it, and the run of the logger with it") from None

    def write(self, rows: Sequence[Row]) -> None:
        os.makedirs(os.path.dirname(self._mark), exist_ok=True)
        super().write(rows)
        with open(self._mark + ".new", "w") as file:
            file.write(str(rows[-1].round))
        os.replace(self._mark + ".new", self._mark)


class _Wandb(_Marked):
    KIND = "wandb"

    def _open(self) -> tuple[Callable[[Sequence[Row]], Any], Callable[[], Any]]:
        library, run = importlib.import_module("wandb"), self._run
        kept = library.init(
            project=self._project, id=f"{run['id']}-{self._island}-rounds", group=run["id"], name=self._island, resume="allow", dir=self._at,
            config={"run": run["name"], "strategy": run["strategy"], "island": self._island}, reinit="create_new",
            settings=library.Settings(console="off", silent=True),
        )  # fmt: skip

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                kept.log({**row.numbers, "round": row.round}, step=row.step)

        return write, kept.finish


class _Tensorboard(_Marked):
    KIND = "logged"

    def _open(self) -> tuple[Callable[[Sequence[Row]], Any], Callable[[], Any]]:
        writers = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        events, summaries = (importlib.import_module(f"tensorboard.compat.proto.{name}_pb2") for name in ("event", "summary"))
        writer = writers.EventFileWriter(os.path.join(self._at, self._run["id"], self._island))

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                values = [summaries.Summary.Value(tag=name, simple_value=value) for name, value in row.numbers.items()]
                writer.add_event(events.Event(wall_time=row.time, step=row.step, summary=summaries.Summary(value=values)))
            writer.flush()

        return write, writer.close


class _Mlflow(Sink):
    """The run's tag `atoll.round` says the last round; it is put with the round's numbers."""

    def __init__(self, run: Mapping[str, Any], island: str, at: str, project: str):
        super().__init__(run, island, at, project)
        if at and (at.startswith("file:") or "://" not in at):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # which MLflow 3 asks for
        self._client = importlib.import_module("mlflow.tracking").MlflowClient(at or None)
        self._tags = {"atoll.run": run["id"], "atoll.island": island, "atoll.from": "coordinator"}
        known = self._client.get_experiment_by_name(project)
        self._experiment = known.experiment_id if known else self._client.create_experiment(project)
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in self._tags.items())
        self._kept = next(iter(self._client.search_runs([self._experiment], wanted)), None)

    def done(self) -> int:
        return int(self._kept.data.tags.get("atoll.round", -1)) if self._kept else -1

    def _open(self) -> tuple[Callable[[Sequence[Row]], Any], Callable[[], Any]]:
        client, entities = self._client, importlib.import_module("mlflow.entities")
        kept = self._kept or client.create_run(self._experiment, tags=self._tags, run_name=f"{self._run['name']} {self._island}")
        client.update_run(kept.info.run_id, status="RUNNING")

        def write(rows: Sequence[Row]) -> None:
            for first in range(0, len(rows), _BATCH):
                some = rows[first : first + _BATCH]
                metrics = [entities.Metric(name, value, int(1000 * row.time), row.step) for row in some for name, value in row.numbers.items()]
                client.log_batch(kept.info.run_id, metrics, tags=[entities.RunTag("atoll.round", str(some[-1].round))])

        return write, lambda: client.set_terminated(kept.info.run_id)


_SINKS: dict[str, type[Sink]] = {"wandb": _Wandb, "mlflow": _Mlflow, "tensorboard": _Tensorboard}
_AT = {"wandb": ".", "mlflow": "", "tensorboard": None}  # where --at does not say


class _Patient:
    """Calls a logger, and says for whom it waits. Errors: _Failed with what went wrong there."""

    def __init__(self, name: str):
        self._name, self._said = name, False

    def _say(self) -> None:
        if not self._said:
            self._said = True
            print(f"atoll: {self._name} has not answered for {_SLOW:.0f} s, and is waited for; the run goes on without it", file=sys.stderr, flush=True)

    def __call__(self, call: Callable[..., Any], *given: Any) -> Any:
        clock = threading.Timer(_SLOW, self._say)
        clock.daemon = True
        clock.start()
        try:
            return call(*given)
        except ModuleNotFoundError as failure:
            raise _Failed(f"{failure.name} is not installed in this Python, which --to {self._name} needs: pip install {failure.name}") from None
        except _Failed:
            raise
        except Exception as failure:
            said = (str(failure).strip().splitlines() or [""])[0]
            raise _Failed(f"{self._name} has failed ({type(failure).__name__}: {said}); call this again, and it goes on behind what is logged") from None
        finally:
            clock.cancel()


# ---- the command


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m atoll.loggers", description="Puts what each round of a run brought into a logger: a group is a run, a run there an island of it.",
        epilog="Called again, it goes on behind what is logged. It asks the program atoll, and the run does not hear of it.",
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", help="the run, as atoll names it")
    parser.add_argument("--to", required=True, choices=sorted(_SINKS), help="the logger")
    parser.add_argument("--at", help="mlflow: the tracking server, or a folder (else MLFLOW_TRACKING_URI); tensorboard: the folder, which must be given; wandb: the folder for its folder wandb (else here)")
    parser.add_argument("--project", help="of wandb, or the experiment of mlflow (else atoll)")
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    for name, what in (("coordinator", "its address, tcp://HOST:PORT"), ("key", "file of an operator's key"), ("state", "state directory")):
        parser.add_argument(f"--{name}", help=what + ", as atoll has it")
    parser.add_argument("--insecure", action="store_true", help="no encryption, as the coordinator was started; loopback only")
    options = parser.parse_args(arguments)
    if options.to == "tensorboard" and (options.at is None or options.project is not None):
        parser.error("--to tensorboard needs --at FOLDER, and has no --project")
    return options


def _polls(coordinator: _Coordinator, follow: bool) -> Iterator[Any]:
    """The run's status; with `follow` until it has ended, and through times in which the coordinator is not reached."""
    said = False
    while True:
        try:
            status = coordinator.status()
        except _Failed as failure:
            if not follow or failure.code != _UNREACHABLE:
                raise
            if not said:
                print(f"atoll: {failure}; it is asked again", file=sys.stderr, flush=True)
            said = True
        else:
            yield status
            if not follow or status["run"]["ended_unix_ms"] is not None:
                return
        time.sleep(_BETWEEN_QUESTIONS)


def _log(coordinator: _Coordinator, options: argparse.Namespace, sinks: dict[str, Sink], done: dict[str, int]) -> None:
    patient = _Patient(options.to)
    at = options.at if options.at is not None else _AT[options.to]
    for status in _polls(coordinator, options.follow):
        for island in (each["name"] for each in status["islands"]):
            if island not in sinks:
                sinks[island] = patient(_SINKS[options.to], status["run"], island, at, options.project or "atoll")
                done[island] = patient(sinks[island].done)
            try:
                rows = coordinator.rows(island, done[island])
            except _Failed as failure:
                if not options.follow or failure.code != _UNREACHABLE:
                    raise
                continue  # which the next status says
            if rows:
                patient(sinks[island].write, rows)
                done[island] = rows[-1].round
                print(f"{island}: to round {rows[-1].round}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """The status to end with: that of `atoll`, or 1 where the logger fails."""
    options = _options(arguments)
    program = anywhere()
    if program is None:
        print("atoll: the program is neither installed with this Python package nor in $PATH: it is asked for the run's rounds", file=sys.stderr)
        return 1
    given = [word for name in ("coordinator", "key", "state") if getattr(options, name) for word in (f"--{name}", getattr(options, name))]
    coordinator = _Coordinator(program, options.run, given + ["--insecure"] * options.insecure)
    sinks: dict[str, Sink] = {}
    try:
        _log(coordinator, options, sinks, {})
        return 0
    except _Failed as failure:
        why = str(failure)
        print(why if why.startswith("atoll: ") else f"atoll: {why}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 130
    finally:
        for sink in sinks.values():
            try:
                _Patient(options.to)(sink.close)
            except _Failed as failure:
                print(f"atoll: {failure}", file=sys.stderr)
