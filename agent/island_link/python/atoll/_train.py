"""`with island.train(model, opt):` around a loop that stays as it was: the optimisers' own hooks count its steps, and the run is followed between
two batches.

A step of the run is what lies between two batches if an optimiser has stepped there: micro-batches of an accumulation, a batch that is left out by
`continue`, and a step that a GradScaler leaves out are none, and their samples go with the next one. One optimiser that steps k times on a batch
does k steps; of several (a GAN's) those that step on one batch do one step.
"""

from __future__ import annotations

import math
import sys
import threading
import types
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional, Union

import torch
from torch.optim import optimizer as of_torch

from . import _library as library
from ._island import Misused, Refused

_INNER = "optimizer", "_optimizer", "base_optimizer"  # where wrappers have it: Accelerate's, Lightning's, SAM
_LOST = 64  # batches without a step and without a finite loss: more than anything but a lost model has


def inner_optimizer(optimizer: Any) -> Any:
    """The optimiser in a wrapper, whose hooks see the steps that are done."""
    while True:
        inner = next((found for name in _INNER if isinstance(found := vars(optimizer).get(name), torch.optim.Optimizer)), None)
        if inner is None:
            return optimizer
        optimizer = inner


def hook_steps(optimizer: Any, before: Optional[Callable[..., None]], after: Callable[..., None]) -> Callable[[], None]:
    """Calls `before`, if it is given, and `after` around each step that is done; what is returned takes them away again."""
    if hasattr(optimizer, "register_step_post_hook"):
        hooks = [optimizer.register_step_post_hook(after)] + ([optimizer.register_step_pre_hook(before)] if before else [])
        return lambda: [hook.remove() for hook in hooks] and None
    inner, own = optimizer.step, vars(optimizer).get("step")  # PyTorch 1.13, whose schedulers put a step of theirs into the optimiser, too

    def step(self: Any, *given: Any, **named: Any) -> Any:
        if before:
            before(self, (self, *given), named)
        said = inner(*given, **named)
        after()
        return said

    step._with_counter = getattr(inner, "_with_counter", False)  # type: ignore[attr-defined]
    optimizer.step = types.MethodType(step, optimizer)

    def unhook() -> None:
        if own is None:
            del optimizer.step
        else:
            optimizer.step = own

    return unhook


class Training:
    """What `island.train(…)` gives: a context manager. Leaving it before the run has ended is refused with both numbers; an exception is told to
    the agent as any other. After it the model is the run's (`island.complete`, `island.first`)."""

    def __init__(self, island: Any, start: Callable[[], None]):
        self._island, self._start = island, start
        self._steps: list[int] = []  # of each optimiser since the last batch
        self._none: list[int] = []  # as many of nothing
        self._unhooks: list[Callable[[], None]] = []
        self._over = False
        self._samples = 0  # handed out since the last step
        self._thread = 0
        self._ended_with: list[tuple[torch.Tensor, torch.Tensor]] = []  # what is shared, and what the run has ended with
        self._steps_late = False  # an optimiser has stepped after that
        self._reduced = False
        self.logged: list[Any] = []  # losses since the last step, detached

    @property
    def position(self) -> int:
        """Of the next sample to hand out."""
        return int(self._island.position) + self._samples

    @property
    def open(self) -> bool:
        """The run has not ended, as far as was asked."""
        return not self._over

    def __enter__(self) -> "Training":
        self._start()
        optimizers = list({id(one): one for one in map(inner_optimizer, self._island._optimizers())}.values())
        if not optimizers:
            raise Refused("island.train(model, optimizer): the optimiser is missing, whose steps are the run's")
        if self._island._gradients and len(optimizers) > 1:
            raise Refused("strategies that exchange gradients take one optimiser in island.train(): its step comes once all gradients are there")
        self._none = [0] * len(optimizers)
        self._steps = list(self._none)
        for number, optimizer in enumerate(optimizers):
            self._unhooks.append(hook_steps(optimizer, self._before_step if self._island._gradients else None, self._counts(number)))
        self._unhooks += self._refuses_others()
        self._thread = threading.get_ident()
        self._island._training = self
        return self

    def _refuses_others(self) -> list[Callable[[], None]]:
        """An optimiser that was not given would train what is shared, and neither count nor be saved. PyTorch 1.13 does not tell of it."""
        hooks = getattr(of_torch, "register_optimizer_step_post_hook", None)
        if hooks is None:
            return []
        given = [one for outer in self._island._optimizers() for one in (outer, inner_optimizer(outer))]
        known = weakref.WeakSet(one for outer in given for one in (outer, *vars(outer).values()) if isinstance(one, torch.optim.Optimizer))
        this = weakref.ref(self)  # of a callback whose framework has failed nobody takes the hook away

        def after(optimizer: Any, *rest: Any) -> None:
            training = this()
            if optimizer in known or training is None:
                return
            known.add(optimizer)
            shared = {id(parameter) for parameter in training._island._declared.parameters.values()}
            if any(id(parameter) in shared for group in optimizer.param_groups for parameter in group["params"]):
                raise Misused(
                    f"an optimiser of type {type(optimizer).__name__} steps parameters that the islands share, and island.train() does not know of it: its steps would "
                    "not count, and its state would not be saved; give all of them, island.train(model, [one, other])"
                )

        return [hooks(after).remove]

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        for unhook in reversed(self._unhooks):  # of PyTorch 1.13 each puts back what it has found
            unhook()
        over = kind is not None and issubclass(kind, StopIteration) and self._over  # of next(batches), where no batch is left
        try:
            ended = over or (kind is None and not self.goes_on())
        finally:
            self._island._training = None
        if ended:
            self._undo_late_steps()
            self._island.leave()
        elif kind is None:  # the agent, which is still there, is told by whoever ends the program
            steps = self._island.training.get("steps")
            raise Misused(
                f"the loop was left after step {self._island.step}{f' of {steps}' if steps else ''}, and the run goes on: let it take batches until there are no "
                "more, or say island.enough(why), which ends the run for all islands"
            )
        return over

    def _end(self) -> None:
        """A loop that takes a batch ahead of its step does one more after the run's end: what the run has ended with is kept, once that comes."""
        self._ended_with = self._island._declared.copies(trained=False)  # which change before an optimiser steps

        def before(*given: Any) -> None:
            if not self._steps_late:
                self._ended_with += self._island._declared.copies(trained=True)
            self._steps_late = True

        for optimizer in {id(one): one for one in map(inner_optimizer, self._island._optimizers())}.values():
            self._unhooks.append(hook_steps(optimizer, before, lambda *given: None))

    def _undo_late_steps(self) -> None:
        if self._steps_late:
            print("atoll: the loop has taken a batch ahead of its step, and a step after the run's end; the model is the run's again", file=sys.stderr, flush=True)
            with torch.no_grad():
                for tensor, values in self._ended_with:
                    tensor.copy_(values)

    def _before_step(self, optimizer: Any = None, given: Any = (), named: Any = types.MappingProxyType({})) -> None:
        if len(given) > 1 and given[1] is not None or named.get("closure") is not None:
            raise Refused(
                "strategies that exchange gradients do it as the optimiser's step begins, and optimizer.step(closure) computes others behind that: call "
                "loss.backward() and then optimizer.step(); what needs a closure (LBFGS, Lightning) has the strategies of rounds"
            )
        order = self._island._in_hand
        if order is not None and order.kind == library.GRADIENT:
            self._reduced = bool(self.logged)
            self._island.reduce_gradients(self._loss(), self._samples)

    def _counts(self, number: int) -> Callable[..., None]:
        steps = self._steps

        def after(*given: Any) -> None:
            steps[number] += 1

        return after

    def _loss(self) -> Any:
        """The mean of what was logged in this step, on its device."""
        if len(self.logged) < 2:
            return self.logged.pop() if self.logged else None
        logged, self.logged = self.logged, []
        if any(isinstance(one, torch.Tensor) for one in logged):
            return torch.stack([torch.as_tensor(one).detach().float().reshape(()) for one in logged]).mean()
        return sum(logged) / len(logged)

    def took(self, samples: int) -> None:
        self._samples += samples

    def goes_on(self) -> bool:
        """Between two batches: steps that were done count, and what is due is carried out. False: the run has ended here."""
        island, steps = self._island, max(self._steps)
        if threading.get_ident() != self._thread:
            raise Misused("batches are taken in another thread than island.train() is in: the run would change the model in the middle of a step; use num_workers=")
        if steps == 1 and island._free > 0 and not self._over and island._enough is None and island._save_to is None and island._in_hand is not None:
            island._count_and_take_free(self.logged.pop() if len(self.logged) == 1 else self._loss(), self._samples)
            self._samples, self._steps[:] = 0, self._none
            return True
        if self._over:
            return False
        if island._in_hand is None:  # the first batch
            self._over = not island.wants_step()
        for number in range(steps):
            self._done() if number == 0 else island.done(samples=0)
            self._over = self._over or not island.wants_step()
            if self._over:
                break
        if self._over:
            self._end()
        if steps:
            self._steps[:] = self._none
            if island._save_to is not None:
                island._save_now()
        elif not self._over:
            island._schedules.stand_at(island.step)  # a loop that steps its scheduler with each micro-batch
            self._refuse_lost()
        return not self._over

    def _refuse_lost(self) -> None:
        """A GradScaler leaves out every step of a model that has diverged, and so the run would never hear of it. Errors: RuntimeError."""
        if self.logged and len(self.logged) % _LOST == 0 and not any(map(math.isfinite, self._island._numbers(self.logged[-_LOST:]))):
            raise RuntimeError(
                f"no optimiser has stepped on the last {_LOST} batches after step {self._island.step}, and none of their losses was finite: the model has diverged"
            )

    def _done(self) -> None:
        island, loss, samples = self._island, self._loss(), self._samples
        if loss is not None and island._in_hand.kind == library.UPDATE and not self._reduced:
            island._losses.append(loss)  # which was not known before the optimiser's step
        self._samples, self._reduced = 0, False
        island.done(loss, samples)

    def batches(self, source: Iterable[Any], samples: Union[int, Callable[[Any], int]]) -> Iterator[Any]:
        """Of `source`, which the program has cut itself, until the run ends."""
        rest = iter(source)  # of which none is taken before what is due has been saved: its state would be a batch ahead
        while self.goes_on():
            try:
                batch = next(rest)
            except StopIteration:
                return
            self._samples += samples(batch) if callable(samples) else samples
            yield batch


def training_of(island: Any) -> Training:
    """The one that is open. Errors: Misused."""
    found: Optional[Training] = island._training
    if found is None:
        raise Misused("batches are taken inside of `with island.train(model, optimizer):`")
    return found
