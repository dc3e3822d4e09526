"""An island's numbers in the loggers that people have, by one line after join():

    from atoll import loggers
    loggers.wandb(island, project="gpt")          # or loggers.mlflow(island, experiment="gpt"), or loggers.tensorboard(island, "logs")

A logger gets `loss`, that of each step, and the means of what island.log() was given, with every round; and `held_out_loss` and the other numbers
of an evaluation as `held_out_…`. The steps are the run's. A group there is a run of Atoll, and a run there is an island of it: one that is killed
or joins again goes on in the same. Of several ranks the first alone logs.

Without a line in the program `python -m atoll.loggers RUN --to wandb|mlflow|tensorboard` logs what the coordinator knows of each round.

A logger costs the run nothing: it is loaded and written to by a thread of its own. What is not installed, fails or does not answer is named once on
stderr, and the numbers that it has no room for are left out. A program that has ended waits at most ten seconds for it.
"""

from __future__ import annotations

import atexit
import importlib
import os
import queue
import sys
import threading
import time
from typing import Any, Callable, Mapping, Optional, Tuple

from ._island import Island

__all__ = ["log_to", "mlflow", "tensorboard", "wandb"]

_ROOM = 1000    # reports that wait for the logger
_PATIENCE = 10.0  # seconds for what is left at the end

Write = Callable[[int, Mapping[str, float]], Any]
Opened = Tuple[Write, Callable[[], Any]]


class _Logger:
    def __init__(self, name: str, opens: Callable[[], Opened]):
        self._name, self._opens, self._said = name, opens, False
        self._reports: queue.Queue[Any] = queue.Queue(_ROOM)
        self._write: Optional[Write] = None
        self._close: Optional[Callable[[], Any]] = None  # None: not open
        self._thread = threading.Thread(target=self._run, name=f"atoll-{name}", daemon=True)
        self._thread.start()

    def hear(self, step: int, held_out: bool, said: Mapping[str, Any]) -> None:
        """`said`: what the agent is answered after that step. Never waits."""
        try:
            self._reports.put_nowait((step, held_out, said))
        except queue.Full:
            self._say(f"does not keep up: what comes while {_ROOM} reports wait for it is left out")

    def end(self) -> None:
        """Nothing comes any more; the thread has a moment for what is left."""
        atexit.unregister(self.end)
        deadline = time.monotonic() + _PATIENCE
        try:
            self._reports.put(None, timeout=_PATIENCE)
        except queue.Full:
            pass
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._say(f"has not ended within {_PATIENCE:.0f} s: what is left for it is left out")

    def _say(self, what: str) -> None:
        if not self._said:
            self._said = True
            print(f"atoll: the logger {self._name} {what}; the training goes on", file=sys.stderr, flush=True)

    def _try(self, call: Any, *given: Any) -> None:
        try:
            call(*given)
        except BaseException as failure:  # SystemExit, too: it is this thread's alone
            self._say(f"has failed ({type(failure).__name__}: {str(failure).strip().splitlines()[0] if str(failure).strip() else ''})")

    def _open(self) -> None:
        self._write, self._close = self._opens()

    def _run(self) -> None:
        self._try(self._open)
        while (report := self._reports.get()) is not None:
            for step, numbers in _numbers_of(*report) if self._close else ():
                self._try(self._write, step, numbers)
        if self._close:
            self._try(self._close)


def _numbers_of(step: int, held_out: bool, said: Mapping[str, Any]) -> list[tuple[int, dict[str, float]]]:
    losses, metrics = list(said.get("losses", ())), dict(said.get("metrics", {}))
    if held_out:
        metrics = {f"held_out_{name}": value for name, value in metrics.items()}
        if said.get("loss") is not None:
            metrics["held_out_loss"] = said["loss"]
    found: dict[int, dict[str, float]] = {step - len(losses) + 1 + at: {"loss": loss} for at, loss in enumerate(losses)}
    if metrics:
        found.setdefault(step, {}).update(metrics)
    return list(found.items())


def log_to(island: Island, opens: Callable[[], Opened], name: str = "of the program") -> None:
    """Gives the island's numbers to a logger of the program's own.

    opens  makes it: gives write(step, numbers by their names), and close(). All three are called in a thread of their own, and may fail or block
    name   as messages name it
    """
    if island.rank == 0:
        logger = _Logger(name, opens)
        island._listeners.append(logger)
        atexit.register(logger.end)  # of a loop that is not left as it should be


def wandb(island: Island, project: Optional[str] = None, **options: Any) -> None:
    """Weights & Biases, online or offline as it is set up (WANDB_MODE=offline). The group is the run, the run's id `RUN-ISLAND`.

    project, options  of wandb.init(); what the program prints is not sent unless settings= says so
    """

    def opens() -> Opened:
        library = importlib.import_module("wandb")
        kept = {} if island.run == "alone" else {"id": f"{island.run}-{island.name}", "group": island.run, "resume": "allow"}
        settings = library.Settings(console="off", silent=True)
        run = library.init(**{"project": project, "name": island.name, "config": island.settings, "settings": settings, **kept, **options})
        run.define_metric("*", step_metric="step")  # by which steps that are done again have their place
        return lambda step, numbers: run.log({"step": step, **numbers}), run.finish

    log_to(island, opens, "wandb")


def _experiment_of(client: Any, name: str) -> Any:
    """Its id with MLflow. Islands begin at the same moment: where another one makes it first, it is there a moment later."""
    for pause in (0.1, 0.3, 1.0, 3.0):
        known = client.get_experiment_by_name(name)
        try:
            return known.experiment_id if known else client.create_experiment(name)
        except Exception:
            time.sleep(pause)
    return client.create_experiment(name)


def mlflow(island: Island, experiment: str = "atoll", uri: Optional[str] = None) -> None:
    """MLflow. An island's run has the tags `atoll.run` and `atoll.island`.

    uri  of the tracking server, or a folder; None: as MLflow is set up (MLFLOW_TRACKING_URI)
    """

    def opens() -> Opened:
        if uri and (uri.startswith("file:") or "://" not in uri):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # which MLflow 3 asks for
        client = importlib.import_module("mlflow.tracking").MlflowClient(uri)
        entities = importlib.import_module("mlflow.entities")
        number = _experiment_of(client, experiment)
        tags = {"atoll.run": island.run, "atoll.island": island.name}
        found = [] if island.run == "alone" else client.search_runs([number], " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items()))
        run = (found[0] if found else client.create_run(number, tags=tags, run_name=f"{island.run} {island.name}")).info.run_id
        for key, value in island.settings.items() if not found else ():
            client.log_param(run, key, value)

        def write(step: int, numbers: Mapping[str, float]) -> None:
            at = int(1000 * time.time())
            client.log_batch(run, [entities.Metric(name, value, at, step) for name, value in numbers.items()])

        client.update_run(run, status="RUNNING")
        return write, lambda: client.set_terminated(run)

    log_to(island, opens, "mlflow")


def tensorboard(island: Island, folder: str) -> None:
    """TensorBoard's event files, in FOLDER/RUN/ISLAND: `tensorboard --logdir FOLDER`."""

    def opens() -> Opened:
        kind = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        writers: list[Any] = []

        def write(step: int, numbers: Mapping[str, float]) -> None:
            if not writers:  # steps from this one on are done again, or for the first time
                writers.append(kind(os.path.join(folder, island.run, island.name), purge_step=step))
            for name, value in numbers.items():
                writers[0].add_scalar(name, value, step)
            writers[0].flush()  # a program that is killed has said all

        return write, lambda: [writer.close() for writer in writers]

    log_to(island, opens, "tensorboard")


if __name__ == "__main__":
    sys.exit(importlib.import_module("atoll._rounds").main(sys.argv[1:]))
