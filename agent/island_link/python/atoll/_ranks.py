"""Ranks of a PyTorch program: how they meet, do the same things, and end what they talk through."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from typing import Any, Mapping, Optional

import numpy
import torch
import torch.distributed as distributed

from . import _library as library
from ._island import Island, LinkError, Misused, samples_of
from ._library import Order
from ._shards import Box, ShardedArena

_BATCH_SECONDS = 0.5  # of steps that ranks do between two words of rank 0
_ALONE_SECONDS = 0.1  # of steps that the only rank does between two words to its agent, in island.train()
_A_STEP = Order(library.STEP)
_OF_ALL_RANKS = library.STOP, library.STAND_AT, library.EVALUATE, library.SAVE, library.MERGE, library.REPORT
_PATIENCE_SECONDS = 3.0  # with ranks that have not come, before it is said who is waited for


def meet_ranks(ranks: int, trainer: Any) -> None:
    """Makes the process group of all ranks. Who waits for another one says so after a while, and rank 0 says it to the agent at once: a variable that
    was meant for another program makes a single process wait for others."""
    rank = int(os.environ.get("RANK", "0"))
    others = "rank 1" if ranks == 2 else f"ranks 1 to {ranks - 1}"
    missing = f"{others} of {ranks} (WORLD_SIZE)" if rank == 0 else f"rank 0 of {ranks} (WORLD_SIZE)"
    at = f" at {os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}" if rank else ""

    if trainer is not None:
        trainer.prepare(f"waiting for {missing}")
    # A process, for PyTorch keeps the interpreter's lock while it waits.
    code = "import sys, time; time.sleep(float(sys.argv[1])); print(sys.argv[2], file=sys.stderr)"
    text = f"atoll: rank {rank} waits for {missing}{at}"
    clock = subprocess.Popen([sys.executable, "-ISc", code, str(_PATIENCE_SECONDS), text], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    finally:
        clock.kill()
        clock.wait()


class Listener:
    """The trainer of a rank that does not talk."""

    def __init__(self, configuration: Mapping[str, Any]):
        self.configuration = configuration

    def declare(self, parameters, description):
        return numpy.zeros(0, numpy.float32), []

    def nothing(self, *given: Any, **named: Any) -> None:
        pass

    prepare = ready = answer = fail = leave = nothing


def _gloo_of(group: Any) -> Any:
    """A group's backend for tensors of the processor; None where it has none, or is its own backend (before PyTorch 2.0)."""
    try:
        return group._get_backend(torch.device("cpu"))
    except (AttributeError, RuntimeError):
        return None


def end_process_groups(groups: list) -> None:
    """Ends all process groups: their threads must end before the interpreter does. `groups`: the caller's last references, taken over.

    From PyTorch 2.0 on a group that is freed waits for the threads of its backend and keeps the interpreter's lock meanwhile. A thread that is
    just letting go of a tensor wants that lock, and both wait for ever. A backend that is freed by itself gives the lock away first: so
    the groups go while their backends are still held, and the backends after them.
    """
    held = [_gloo_of(group) for group in (*groups, distributed.group.WORLD)]
    groups.clear()
    distributed.destroy_process_group()
    held.clear()


class RankedIsland(Island):
    """An island whose trainer has one process or several. Rank 0 talks to the agent and decides; what it decides travels to the others in
    batches of steps, and each does its part of it.

    The class over it has what a rank copies: `_copy_shards`, `_check_model`, `_shared`, and `_device` where parameters are on GPUs.
    """

    _device: Any
    _training: Any  # island.train()'s, while it is open
    _before_step: Any  # what counts steps stands at the run's

    rank: int
    ranks: int
    step: int
    position: int
    progress: float

    def __init__(self, trainer: Any, defaults: Mapping[str, Any], rank: int, ranks: int, talk: Any):
        super().__init__(trainer, defaults)
        self.rank, self.ranks = rank, ranks
        self._talk = talk  # the group of small messages between ranks
        self._free = 0     # steps that are decided and not begun
        self._owed = [0, 0, 0]  # steps, samples and tokens done and not answered
        self._pace = 0.0   # seconds a step
        self._batch_began = 0.0
        self._boxes: list[Box] = []  # of sharded parameters: what this rank has of each
        self._sharded: Optional[ShardedArena] = None
        self._steps_of_run = self.training.get("steps")
        self._reports_beside = False  # rank 0's numbers come from a GPU while it goes on: it asks no other rank for its own

    def wants_step(self) -> bool:
        if self.ranks == 1:
            return self._next_alone()
        if not self._started:
            raise Misused("island.start(…) comes before the first step")
        if self._free == 0:
            if self._sharded:
                self._answer_ended()
            while True:
                order = self._tell(self._decide() if self.rank == 0 else None)
                if order.kind == library.STOP:
                    return self._stopped(order)
                if order.kind == library.STEP:
                    self._free = order.free_until - order.step + 1
                    self.progress = order.progress
                    self._batch_began = time.monotonic()
                    break
                self._follow(order)
        return self._take_free()

    def _take_free(self) -> bool:
        self._free -= 1
        self._stand()
        self._in_hand = _A_STEP
        return True

    def _count(self, loss: Any, samples: int, tokens: int) -> None:
        """A step that is done, and not answered yet."""
        if loss is not None:
            self._losses.append(loss)
        self.step += 1
        self.position += samples
        self._stood = self.step
        owed = self._owed
        owed[0] += 1
        owed[1] += samples
        owed[2] += tokens

    def _count_and_take_free(self, loss: Any, samples: int) -> None:
        """done() and wants_step() in a few lines, where another step is free: beside a step's work a call costs several times what it does alone."""
        if loss is not None:
            self._losses.append(loss)
        self.step = self._stood = step = self.step + 1
        self.position += samples
        owed = self._owed
        owed[0] += 1
        owed[1] += samples
        owed[2] += samples * self._tokens_per_sample
        if self._steps_of_run:
            progress = (step + 1) / self._steps_of_run
            self.progress = max(self.progress, min(1.0, progress))
        self._free -= 1
        self._in_hand = _A_STEP
        self._before_step()

    def _next_alone(self) -> bool:
        """One rank. In island.train() it asks its agent once for as many steps as are free and take a moment: beside the work of a step each call costs
        several times what it does in an empty loop."""
        try:
            self._answer_owed()
        except LinkError as failure:
            return self._ended(failure)
        wanted, order = super().wants_step(), self._in_hand
        paced = self.training.get("max_steps_per_second") or self._begun or self._training is None
        if wanted and order is not None and order.kind == library.STEP and not paced:
            self._free, self._batch_began = self._batch(order, _ALONE_SECONDS) - 1, time.monotonic()
        return wanted

    def _batch(self, order: Order, seconds: float) -> int:
        """Steps of so many seconds, of those that are free."""
        return min(order.free_until - order.step + 1, max(1, int(seconds / self._pace)) if self._pace > 0 else 1)

    def _answer_owed(self) -> None:
        """The steps that were done and not answered."""
        if self._owed[0] > 0:
            self._pace = (time.monotonic() - self._batch_began) / self._owed[0]
            (steps, samples, tokens), self._owed, self._free = self._owed, [0, 0, 0], 0
            self._trainer.answer(steps=steps, samples=samples, tokens=tokens, enough=self._take_enough())

    def _decide(self) -> Order:
        """Rank 0: the next thing that all ranks have to do. What it can do alone, it does."""
        try:
            self._answer_owed()
            while True:
                order = self._trainer.next(500) if self._sharded else self._next()
                if order.kind == library.GRADIENT:
                    raise Misused("strategies that exchange gradients work with trainers of one rank")
                if order.kind == library.STEP:
                    return order._replace(free_until=order.step + self._batch(order, _BATCH_SECONDS) - 1)
                shared = order.kind in (library.WRITE, library.FETCH) or (order.kind == library.NONE and self._begun)
                if order.kind in _OF_ALL_RANKS or (self._sharded and shared):
                    return order
                if order.kind != library.NONE:
                    self._carry_out(order)
        except LinkError as failure:
            if not failure.gone:
                raise
            return Order(library.STOP)

    def _tell(self, order: Optional[Order]) -> Order:
        if order is not None:
            order, self._news = order._replace(data=self._news), None
        said = [order]
        distributed.broadcast_object_list(said, 0, group=self._talk)
        if self.rank != 0 and said[0].data is not None:
            self.deal(said[0].data)
        return said[0]

    def _answer_ended(self, wait: bool = False) -> None:
        """Of shards the copies of all ranks: all call this together."""
        if not self._sharded:
            return super()._answer_ended(wait)
        if not self._begun:
            return
        ended = torch.tensor([next((number for number, begun in enumerate(self._begun) if not begun.copies.ended()), len(self._begun))])
        distributed.all_reduce(ended, distributed.ReduceOp.MIN, group=self._talk)
        for _ in range(max(int(ended), int(wait))):
            self._end_oldest()

    def _follow(self, order: Order) -> None:
        if order.kind == library.NONE:
            return self._answer_ended(wait=True)
        if self._sharded and order.kind in (library.WRITE, library.FETCH, library.MERGE):
            return self._carry_out_shards(self._sharded, order)
        if self._device is not None and order.kind == library.REPORT and (self._sharded or self.rank == 0):
            return self._carry_out(order)
        if self.rank == 0:
            return self._carry_out(order)
        if order.kind == library.STAND_AT:
            self.step, self.position = order.step, order.position
        elif order.kind == library.EVALUATE and self._evaluate:
            self._evaluate()
        elif order.kind == library.SAVE:
            self._begin_to_save(order.directory)
        elif order.kind == library.REPORT:
            losses, _ = self._take_reported()
            if not self._reports_beside:
                self._losses_of(losses)
                if order.wants_norm:
                    self._norm()
        elif order.kind == library.MERGE:
            self._check_model()
            for entry in self._entries[order.fragment]:
                self._spread(self._shared[entry.parameter])
        self._owed = [0, 0, 0]

    def _carry_out_shards(self, arena: ShardedArena, order: Order) -> None:
        """This rank's shards of a fragment, into the arena or out of it; the order is done once all ranks have copied theirs."""

        def all_have_copied() -> Mapping[str, Any]:
            if order.kind == library.WRITE:
                arena.written(order.fragment, self._shapes)
            else:
                distributed.barrier(group=self._talk)
            return {}

        self._copy_shards(arena, order)
        if self._device is not None:
            self._begin_answer(self._device.begun(), all_have_copied)
        else:
            self._trainer.answer(**all_have_copied())

    def _spread(self, tensor: torch.Tensor) -> None:
        """What rank 0 has taken, the other ranks take."""
        if self.ranks > 1:
            distributed.broadcast(tensor.detach(), 0)

    def _losses_of(self, given):
        """Rank 0's; not a number in each step in which another rank's was none. Where parameters are on GPUs, rank 0's alone."""
        losses = super()._losses_of(given)
        if self.ranks == 1:
            return losses
        bad: list[Any] = [None] * self.ranks
        distributed.gather_object([at for at, loss in enumerate(losses) if not math.isfinite(loss)], bad if self.rank == 0 else None, 0, group=self._talk)
        for at in {at for of_rank in bad for at in of_rank or [] if at < len(losses)}:
            losses[at] = math.nan
        return losses

    def done(self, loss: Any = None, samples: Optional[int] = None, tokens: Optional[int] = None, **metrics: Any) -> None:
        if self.ranks == 1 and (self._training is None or self._in_hand is None or self._in_hand.kind != library.STEP):
            return super().done(loss, samples, tokens, **metrics)
        samples = samples_of(samples)
        if self._in_hand is None:
            raise Misused("island.done() without a step: loop over island.steps()")
        if self._in_hand.kind == library.GRADIENT:
            raise Misused("the run's strategy exchanges gradients: call island.reduce_gradients(loss, samples=…) before opt.step()")
        self._note(metrics)
        self._count(loss, samples, samples * self._tokens_per_sample if tokens is None else tokens)
        self._in_hand = None

    def reduce_gradients(self, loss: Any, samples: int, tokens: Optional[int] = None) -> None:
        if self.ranks == 1:
            return super().reduce_gradients(loss, samples, tokens)
        if self._in_hand is not None and self._in_hand.kind == library.GRADIENT:
            raise Misused("strategies that exchange gradients work with trainers of one rank")

    def leave(self) -> None:
        super().leave()
        if self.ranks > 1 and self._talk is not None:
            talk, self._talk = [self._talk], None
            end_process_groups(talk)
