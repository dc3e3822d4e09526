"""What stands in for an agent where there is none: the same program trains by itself, and can be ended and started again."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections import deque
from typing import Any, Mapping, Optional, Sequence

import numpy

from . import _library as library
from ._island import Refused
from ._library import Order
from ._saver import sync

_COUNTS = "alone.json"  # beside what the program saves: step and position
SAVING = "saving"       # the folder of a save that has not ended
_FORMER = "former"      # of one that is being replaced by another of the same step


def _say(text: str) -> None:
    print("atoll: " + text, file=sys.stderr, flush=True)


def begin_save(folder: str) -> str:
    """The folder that a program saves to before end_save(). Errors: OSError."""
    saving = os.path.join(folder, SAVING)
    shutil.rmtree(saving, ignore_errors=True)
    os.makedirs(saving)
    return saving


def end_save(folder: str, step: int, position: int, configuration: Mapping[str, Any]) -> None:
    """What was saved is FOLDER/STEP from now on, and what was saved before it is removed. Errors: OSError."""
    saving, whole = os.path.join(folder, SAVING), os.path.join(folder, str(step))
    with open(os.path.join(saving, _COUNTS), "w") as file:
        json.dump({"step": step, "position": position, "configuration": configuration}, file)
    for name in os.listdir(saving):
        sync(os.path.join(saving, name))
    sync(saving)
    former = os.path.join(folder, _FORMER)
    shutil.rmtree(former, ignore_errors=True)
    if os.path.exists(whole):
        os.rename(whole, former)
    os.rename(saving, whole)
    sync(folder)
    shutil.rmtree(former, ignore_errors=True)
    for name in os.listdir(folder):
        if name.isdecimal() and int(name) != step:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


class Alone:
    """Every step is allowed, and nothing is exchanged. After each `every` steps, and at the end, the mean losses and the program's own numbers
    are printed, held-out data are evaluated, and the state is saved. The loop ends after its steps, or once the program says that it is enough.

    every   steps from one evaluation and save to the next
    folder  FOLDER/STEP has what the program saves after that step: the newest alone, from which a program that is started again goes on.
            None: nothing is saved. A save that was cut off leaves the one before. One process at a time uses a folder
    Errors: Refused where the folder has something else.
    """

    def __init__(self, configuration: Mapping[str, Any], *, every: int = 100, folder: Optional[str] = None):
        if every < 1:
            raise Refused(f"every is {every}; the steps from one evaluation to the next are at least one")
        self._every, self._folder = every, folder
        resume = self._newest() if folder else None
        self._of_run: Mapping[str, Any] = resume["configuration"] if resume else {}  # where an island of a run was saved
        given = {"run": "alone", "island": "alone", "seed": 1, "payload": "parameters", "resume": resume, **self._of_run, **configuration}
        self.configuration: dict[str, Any] = given
        self._steps = self.configuration.get("training", {}).get("steps")
        self._step, self._position = (resume["step"], resume["position"]) if resume else (0, 0)
        self._told = self._step  # the step after which all was told and saved
        self._enough: Optional[str] = None
        self._due: deque[Order] = deque()
        self._in_hand = Order(library.NONE)
        self._numbers: list[str] = []  # to be printed
        if resume:
            _say(f"goes on after step {self._step}, from {resume['directory']}")

    # ---- what an agent's link has

    def declare(self, parameters: Sequence[tuple[Any, ...]], description: Optional[str]) -> tuple[Any, ...]:
        return numpy.zeros(0, numpy.float32), []

    def ready(self, tokens_available: int) -> None:
        pass

    def next(self, timeout_ms: int) -> Order:
        over = self._enough is not None or (self._steps is not None and self._step >= self._steps)
        if self._step > self._told and (over or self._step % self._every == 0):
            self._told = self._step
            self._due.extend((Order(library.REPORT), Order(library.EVALUATE)))
            if self._folder:
                self._begin_to_save(self._folder)
        if self._due:
            self._in_hand = self._due.popleft()
        elif over:
            self._in_hand = Order(library.STOP, end=library.COMPLETE_FIRST)
        else:
            until = (self._step // self._every + 1) * self._every
            until = until if self._steps is None else min(until, self._steps)
            progress = (self._step + 1) / self._steps if self._steps else 0.0
            self._in_hand = Order(library.STEP, step=self._step + 1, position=self._position, free_until=until, progress=progress)
        return self._in_hand

    def answer(
        self,
        steps: int = 0,
        samples: int = 0,
        losses: Sequence[float] = (),
        loss: Optional[float] = None,
        metrics: Mapping[str, float] = {},
        error: Optional[str] = None,
        enough: Optional[str] = None,
        **rest: Any,
    ) -> None:
        if self._in_hand.kind == library.REPORT:
            self._numbers = [f"training loss {numpy.mean(losses):g}"] if losses else []
        if self._in_hand.kind == library.EVALUATE and loss is not None:
            self._numbers.append(f"held-out loss {loss:g}")
        self._numbers += [f"{name} {value:g}" for name, value in metrics.items() if math.isfinite(value)]
        if self._in_hand.kind == library.EVALUATE and self._numbers:
            _say(f"step {self._step}: " + ", ".join(self._numbers))
        if self._in_hand.kind == library.SAVE:
            self._saved(error)
        if self._in_hand.kind == library.STEP:
            self._step += max(steps, 1)
            self._position += samples
            self._enough = enough or self._enough

    def arena_path(self) -> str:
        return ""

    def prepare(self, what: str) -> None:
        pass

    def fail(self, why: str, permanent: bool) -> None:
        pass

    def leave(self) -> None:
        pass

    # ---- the folder

    def _newest(self) -> Optional[dict[str, Any]]:
        names = [name for name in os.listdir(self._folder) if name.isdecimal()] if os.path.isdir(self._folder or "") else []
        if not names and not os.path.isdir(os.path.join(self._folder or "", _FORMER)):
            return None
        directory = os.path.join(self._folder or "", max(names, key=int) if names else _FORMER)
        try:
            with open(os.path.join(directory, _COUNTS)) as file:
                counts = json.load(file)
            kept = {"directory": directory, "configuration": dict(counts.get("configuration", {}))}
            return {**kept, "step": int(counts["step"]), "position": int(counts["position"])}
        except (OSError, ValueError, TypeError, KeyError):
            raise Refused(f"{directory} is not what a program without an agent saves: give another folder") from None

    def _begin_to_save(self, folder: str) -> None:
        try:
            self._due.append(Order(library.SAVE, directory=begin_save(folder)))
        except OSError as failure:
            self._not_saved(str(failure))

    def _not_saved(self, why: str) -> None:
        _say(f"nothing is saved in {self._folder}: {why}")

    def _saved(self, error: Optional[str]) -> None:
        """What the program has saved counts from now on."""
        try:
            if error:
                raise OSError(error)
            end_save(str(self._folder), self._step, self._position, self._of_run)
        except OSError as failure:
            self._not_saved(str(failure))
