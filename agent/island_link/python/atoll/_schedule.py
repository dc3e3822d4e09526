"""Learning-rate schedulers of PyTorch that stand at the run's step, whatever this island has done of it itself.

A scheduler counts how often it was stepped. A run's step jumps where an island joins late, comes back from an older checkpoint, or leaves
out steps (adaptive pace). A scheduler is moved there by stepping it as often as is missing; backwards from its beginning on.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, Optional

import torch
from torch.optim import lr_scheduler

from . import _state
from ._island import Refused

_SCHEDULERS = tuple(getattr(lr_scheduler, name) for name in ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau") if hasattr(lr_scheduler, name))


def scheduler_in(value: Any) -> Optional[Any]:
    """The scheduler that `value` is, or that it wraps (Accelerate's); None where it is another thing."""
    if isinstance(value, _SCHEDULERS):
        return value
    inner = getattr(value, "scheduler", None)
    return inner if isinstance(inner, _SCHEDULERS) else None


_OF_A_LOOP = 4  # steps in a row; a GradScaler that leaves out a step leaves out the scheduler's, too


class Schedule:
    """A scheduler and where it began."""

    def __init__(self, name: str, scheduler: Any):
        self.name, self._scheduler = name, scheduler
        self.by_loss = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        self._optimizers = list({id(one): one for one in self._optimizers_of(scheduler)}.values())
        self.counter = scheduler
        while isinstance(self.counter, lr_scheduler.ChainedScheduler):  # whose own counter some versions lack
            self.counter = self.counter._schedulers[0]
        self.base = 0 if self.by_loss else int(self.counter.last_epoch)
        try:
            self._first = copy.deepcopy(scheduler.state_dict()), [self._hyperparameters(one) for one in self._optimizers]
        except Exception:  # a scheduler whose state cannot be copied can be moved forwards alone
            self._first = None
        self._fused = any(group.get("fused") for one in self._optimizers for group in one.param_groups)  # may leave out steps without a word
        self._by_loop, self._not_by_loop, self._last = 0, 0, -1  # steps in which the loop stepped it, and in a row did not

    def steps_of_loop(self, step: int) -> None:
        """Before it is moved to `step`. A loop that steps it in each step, or never, means what is done here. Errors: Refused for one that steps it
        once an epoch, or from a step on, or up to one."""
        last, self._last = self._last, step
        behind = step - self.stood_at()
        if step != last + 1 or behind not in (0, 1) or last < 0 or self._fused:
            return  # the run has jumped
        was = self._not_by_loop
        self._by_loop, self._not_by_loop = (self._by_loop + 1, 0) if behind == 0 else (self._by_loop, was + 1)
        if (behind == 0 and was >= _OF_A_LOOP) or (self._by_loop and self._not_by_loop >= _OF_A_LOOP):
            raise Refused(
                f"{self.name} is stepped by the loop in some steps and not in {max(was, self._not_by_loop)} in a row: as scheduler= it stands at the run's step. One "
                "that counts epochs, or begins or ends in the middle, is written as a function of the step (LambdaLR), or is in state= and the loop's own"
            )

    @staticmethod
    def _optimizers_of(scheduler: Any) -> list:
        inner = getattr(scheduler, "_schedulers", None)
        if inner:
            return [one for part in inner for one in Schedule._optimizers_of(part)]
        return [scheduler.optimizer]

    @staticmethod
    def _hyperparameters(optimizer: Any) -> list:
        return [{key: copy.deepcopy(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups]

    def stood_at(self) -> int:
        """How often it was stepped since it was given."""
        return int(self.counter.last_epoch) - self.base

    def stand_at(self, step: int) -> Optional[str]:
        """Moves it; gives why it could not be moved."""
        missing = step - self.stood_at()
        if missing == 0:
            return None
        if missing < 0:
            if self._first is None:
                return "its state at the beginning cannot be copied"
            self._begin_anew()
            missing = step
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that no optimiser's step came before
                for _ in range(missing):
                    self._scheduler.step()
        except (ValueError, TypeError) as failure:  # OneCycleLR past its last step; a step() that asks for more
            return str(failure).splitlines()[0]
        return None if self.stood_at() == step else "it does not count its steps"

    def _begin_anew(self) -> None:
        state, hyperparameters = self._first
        for optimizer, groups in zip(self._optimizers, hyperparameters):
            for group, values in zip(optimizer.param_groups, groups):
                for key, value in values.items():
                    if isinstance(group.get(key), torch.Tensor) and isinstance(value, torch.Tensor):
                        group[key].copy_(value)
                    else:
                        group[key] = copy.deepcopy(value)
        self._scheduler.load_state_dict(copy.deepcopy(state))


class Schedules:
    """Those that a program gave to follow the run, and those in its state, which its loop steps.

    given  as they were given, to be saved and restored
    Errors: Refused for what is no scheduler.
    """

    def __init__(self, scheduler: Any, state: Any):
        self.given = [] if scheduler is None else list(scheduler) if isinstance(scheduler, (list, tuple)) else [scheduler]
        for number, one in enumerate(self.given):
            if scheduler_in(one) is None:
                raise Refused(f"scheduler[{number}] is of type {type(one).__name__}; a learning-rate scheduler of torch.optim.lr_scheduler is taken")
        self._followed = [Schedule(f"scheduler[{number}]", scheduler_in(one)) for number, one in enumerate(self.given)]
        self._moved = [schedule for schedule in self._followed if not schedule.by_loss]
        found = [(path, scheduler_in(leaf)) for path, leaf, _ in _state.leaves(state)]
        self._stepped_by_loop = [Schedule(path, one) for path, one in found if one is not None]

    def stand_at(self, step: int) -> None:
        """Before each step. Errors: Refused where one of those that follow cannot."""
        for schedule in self._moved:
            schedule.steps_of_loop(step)
            if schedule.counter.last_epoch - schedule.base == step:
                continue  # beside a step's work a call costs several times what it does alone
            why = schedule.stand_at(step)
            if why:
                raise Refused(f"{schedule.name} cannot stand at step {step}: {why}")

    def jumped(self, before: int, step: int) -> list[str]:
        """The run's step is `step`, and the last one that was done here is `before`: gives those that cannot be moved there."""
        cannot = []
        for schedule in self._stepped_by_loop:
            if schedule.by_loss:
                why = "it goes by the loss"
            elif schedule.stood_at() != before:
                why = "it is not stepped once in each step"
            else:
                why = schedule.stand_at(step)
            if why:
                cannot.append(f"{schedule.name} ({why})")
        return cannot + [f"{schedule.name} (it goes by the loss)" for schedule in self._followed if schedule.by_loss]


def counters(state: Any) -> list[str]:
    """What of `state` may count steps and is no scheduler: averages, samplers, objects of the program's own. Optimisers, modules,
    a GradScaler and generators do not count the run's steps."""
    optimizers, modules = torch.optim.Optimizer, torch.nn.Module
    return [
        path
        for path, leaf, _ in _state.leaves(state)
        if scheduler_in(leaf) is None
        and (isinstance(leaf, int) and not isinstance(leaf, bool) or hasattr(leaf, "n_averaged") or hasattr(leaf, "load_state_dict"))
        and (hasattr(leaf, "n_averaged") or not (isinstance(leaf, (optimizers, modules)) or hasattr(leaf, "param_groups") or hasattr(leaf, "get_scale")))
    ]
