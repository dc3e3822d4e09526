"""What an island is to a training loop, whatever the arrays are: orders in their turn, steps, counters, data."""

from __future__ import annotations

import hashlib
import random
import re
import sys
import traceback
from collections import deque
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy

from . import _library as library
from ._library import LinkError, Order
from ._saver import Saver
from ._share import Share

_MOST_METRICS = 32
_LAYER = re.compile(r"^(.*?\.)?(\d+)\.")


class Refused(ValueError):
    """What the program asks for cannot be done, and starting it again would not help."""

    permanent = True


class Misused(RuntimeError):
    """The program calls the library as it cannot be called, and would so again."""

    permanent = True


class Stopped(SystemExit):
    """The agent wants no more steps, or is gone: the program ends with status 0."""


def refuse_type(name: str, kind: str) -> None:
    """kind: a type's name, as NumPy's and PyTorch's agree on it. Values of float64 are rounded where they are exchanged, as everything is
    there. Errors: Refused where float32 cannot stand for its values: half of a complex number, a mean of integers."""
    kind = kind.replace("torch.", "")
    if kind not in ("float64", "float32", "float16", "bfloat16") and not kind.startswith("float8"):
        raise Refused(
            f"parameter '{name}' has type {kind}, which float32 cannot carry; parameters of float64, float32, bfloat16 and float16 are synchronised"
        )


class Unsaid(TypeError):
    permanent = True


def samples_of(samples: Optional[int]) -> int:
    """Errors: Unsaid where the loop does not say how many it took: any default would be wrong for its batches."""
    if samples is None:
        raise Unsaid("island.done(loss, samples=…): say how many samples this step took, of all ranks together; the next ones are found by it")
    return samples


def blocks_of(names: Sequence[str]) -> list[int]:
    """The block of each parameter by its name, in the order of the model: -1 before the first layer (embeddings), 0 to L-1 for
    names with a number as a component ("transformer.h.3.attn.weight"), L for what comes after."""
    seen: dict[str, int] = {}
    found = [_LAYER.match(name) for name in names]
    for match in found:
        if match:
            seen.setdefault(match.group(0), len(seen))
    blocks, begun = [], False
    for match in found:
        begun = begun or match is not None
        blocks.append(seen[match.group(0)] if match else len(seen) if begun else -1)
    return blocks if seen else [0] * len(blocks)


class Begun(NamedTuple):
    """An order that goes on beside the steps."""

    copies: Any  # ended() and wait()
    answer: Callable[[], Mapping[str, Any]]  # once they have ended


class Island:
    """One run on this island. Subclasses know the arrays (`_write`, `_merge`, …); this knows the turns.

    settings  [trainer.settings] of the run file, over the defaults that join() was given
    part, parts  train on part `part` (from 0) of `parts` disjoint ones; both change as islands come and go
    seed      of the run, the same on all islands
    step      inner steps done since the beginning of the run
    position  samples that this island has given since then
    sample    number of the next one in the order of the whole run: no other island has it
    progress  share of the run that is done with the step in hand, 0 to 1: of its steps, or of its tokens where the run ends by tokens
    files     of the run's data, if it names any
    complete  after the loop: the run is completed, and its last parameters are in the model, the same on every island
    first     after the loop of a completed run: of all islands this is the one that writes what is written once
    """

    def __init__(self, trainer: Any, defaults: Mapping[str, Any]):
        self._trainer = trainer
        self.configuration: Mapping[str, Any] = trainer.configuration
        configuration = self.configuration
        own = configuration.get("trainer") or {}
        data = configuration.get("data") or {}
        self.settings: dict[str, Any] = {**defaults, **own.get("settings", {})}
        self.run: str = configuration.get("run", "")
        self.name: str = configuration.get("island", "")
        self.seed: int = configuration.get("seed", 1)
        self.deal(data)
        self.files: list[str] = data.get("files", [])
        self.training: dict[str, Any] = configuration.get("training") or {}
        self.step: int = 0
        self.position: int = 0
        self.progress: float = 0.0
        self.complete: bool = False
        self.first: bool = False
        self.rank: int = 0
        self.ranks: int = 1
        self._gradients = configuration.get("payload") == "gradient"
        self._tokens_per_sample: int = own.get("tokens_per_sample", 1)
        self._entries: dict[int, list[library.Entry]] = {}
        self._losses: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self._metrics: dict[str, list[Any]] = {}  # of the steps since the last report
        self._enough: Optional[str] = None
        self._in_hand: Optional[Order] = None
        self._begun: deque[Begun] = deque()
        self._saver = Saver()
        self._listeners: list[Any] = []  # loggers, which hear what the agent is answered
        self._evaluate: Optional[Callable[[], Any]] = None
        self._started = False
        self._stood = 0  # the step that what counts by itself has come to
        self._named: set[str] = set()  # what was said of it

    # ---- what subclasses know

    def _write(self, index: int, out: numpy.ndarray) -> None:
        raise NotImplementedError

    def _merge(self, index: int, values: numpy.ndarray, alpha: float) -> None:
        raise NotImplementedError

    def _fetch(self, index: int, values: numpy.ndarray) -> None:
        raise NotImplementedError

    def _write_gradient(self, index: int, out: numpy.ndarray) -> None:
        raise NotImplementedError

    def _read_gradient(self, index: int, values: numpy.ndarray) -> None:
        raise NotImplementedError

    def _to_save(self, beside: bool) -> Optional[Callable[[str], None]]:
        """What writes all that is needed to continue into a folder; with `beside` as it is at this moment, from another thread. None: nothing."""
        raise NotImplementedError

    def _saves_beside(self) -> bool:
        return bool(self.configuration.get("saves_beside")) and not self._gradients

    def _save(self, directory: str) -> None:
        write = self._to_save(False)
        if write is not None:
            write(directory)

    def _load(self, directory: str) -> None:
        raise NotImplementedError

    def _norm(self) -> float:
        return 0.0

    def _counters(self) -> list[str]:
        """What the program has given to be saved that may count steps by itself, and cannot be moved."""
        return []

    def _jumped(self, before: int) -> None:
        """The run's step is not the one after the last that was done here: this island joined, came back, or left out steps."""
        self._tell_of(self._counters(), before)

    def _tell_of(self, names: Sequence[str], before: int) -> None:
        """Each is named once: with adaptive pace a run jumps in every round."""
        new = [name for name in names if name not in self._named]
        self._named.update(new)
        if new:
            print(
                f"atoll: the run goes on at step {self.step}, and this program has done its steps to {before}: {', '.join(new)} cannot be moved there; "
                "what counts steps should take them from island.step",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    def _stand(self) -> None:
        """Before each step: what can be moved to the run's step is."""
        if self._stood != self.step:
            self._jumped(self._stood)
            self._stood = self.step

    def _numbers(self, values: Sequence[Any]) -> list[float]:
        """Losses or metrics as the loop gave them, as floats."""
        return [float(value) for value in values]

    def _losses_of(self, given: Sequence[Any]) -> list[float]:
        """Of the steps since the last report."""
        return self._numbers(given)

    # ---- beginning

    def _begin(
        self,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        blocks: Any,
        description: Optional[str],
        samples: int,
        buffers: Optional[Sequence[int]] = None,  # 0: trained
    ) -> None:
        if self._started:
            raise Misused("island.start() is called once")
        self._started = True
        numbers = [blocks(name) for name in names] if callable(blocks) else blocks or blocks_of(names)
        arena, entries = self._trainer.declare(list(zip(names, shapes, numbers, buffers or [0] * len(names))), description)
        self._arena = arena
        for entry in entries:
            self._entries.setdefault(entry.fragment, []).append(entry)
        resume = self.configuration.get("resume")
        if resume:
            self.step, self.position = resume["step"], resume["position"]
            if resume.get("directory"):
                self._stood = self.step  # unless the checkpoint says that it is of an earlier one
                self._load(resume["directory"])
        self._trainer.ready(samples * self._tokens_per_sample)

    # ---- the loop

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to do, from 0 on. Ends when the run is over, the island leaves, or the agent is gone; each step must
        end with done()."""
        while self.wants_step():
            yield self.step
            if self._in_hand is not None:
                raise Misused("a step ended without island.done(loss, samples=…)")
        self.leave()

    def wants_step(self) -> bool:
        """Carries out what is due (copies, merges, evaluations, saves) and says whether another step is wanted."""
        if not self._started:
            raise Misused("island.start(…) comes before the first step")
        try:
            while True:
                order = self._next()
                if order.kind == library.STOP:
                    return self._stopped(order)
                if order.kind in (library.STEP, library.GRADIENT):
                    self._in_hand = order
                    self.progress = order.progress
                    self._stand()
                    return True
                if order.kind != library.NONE:
                    self._carry_out(order)
        except LinkError as failure:
            return self._ended(failure)

    def _stopped(self, order: Order) -> bool:
        """There is no further step."""
        self.complete, self.first = order.end != library.LEFT, order.end == library.COMPLETE_FIRST
        return False

    def _next(self) -> Order:
        """The next order. What goes on beside the steps is waited for only where there is nothing else to do."""
        self._answer_ended()
        self._answer_saved()
        order = self._trainer.next(20 if self._saver.busy else 500)
        if order.data is not None:
            self.deal(order.data)
        if order.kind == library.NONE:
            self._answer_ended(wait=True)
            self._saver.wait(0.005)
        return order

    def deal(self, data: Mapping[str, Any]) -> None:
        """What of the data is this island's, as its agent says; it says so anew when islands come and go."""
        self.part: int = data.get("part", 0)
        self.parts: int = data.get("parts", 1)
        self.share: Share = Share(data)
        self._dealt: Mapping[str, Any] = data
        self._news: Optional[Mapping[str, Any]] = data  # for the other ranks

    @property
    def sample(self) -> int:
        return self.share.sample(self.position)

    def _begin_answer(self, copies: Any, answer: Callable[[], Mapping[str, Any]] = dict) -> None:
        """The order in hand goes on beside the steps; once its copies have ended it is answered with `answer()`."""
        self._begun.append(Begun(copies, answer))
        self._trainer.answer(answered=library.BEGUN)

    def _end_oldest(self) -> None:
        begun = self._begun.popleft()
        begun.copies.wait()
        try:
            self._trainer.answer(answered=library.ENDED, **begun.answer())
        except LinkError as failure:
            self._ended(failure)  # an agent that is gone gives no next order

    def _answer_ended(self, wait: bool = False) -> None:
        """Answers the orders that have ended; with `wait` waits for the oldest."""
        if wait and self._begun:
            self._end_oldest()
        while self._begun and self._begun[0].copies.ended():
            self._end_oldest()

    def _answer_saved(self, wait: bool = False) -> None:
        """Says that the state is written, if it is; with `wait` once it is. Errors: what went wrong but for the disk's errors, which are told."""
        if not self._saver.busy or not (wait or self._saver.ended()):
            return
        failure = self._saver.taken()
        try:
            self._trainer.answer(answered=library.SAVED, error=None if failure is None else str(failure) or type(failure).__name__)
        except LinkError as gone:
            self._ended(gone)
        if failure is not None and not isinstance(failure, OSError):
            raise failure

    def _ended(self, failure: LinkError) -> bool:
        if failure.gone:
            return False  # what it said last is the agent's to tell
        raise failure

    def reduce_gradients(self, loss: Any, samples: int, tokens: Optional[int] = None) -> None:
        """Where the strategy exchanges gradients ("data-parallel"): between backward and the optimiser's step, takes the mean of all
        islands' gradients. With other strategies it does nothing."""
        order = self._in_hand
        if order is None or order.kind != library.GRADIENT:
            return
        if loss is not None:
            self._losses.append(loss)
        self._trainer.answer(samples=samples, tokens=samples * self._tokens_per_sample if tokens is None else tokens)
        while True:
            order = self._next()
            if order.kind == library.UPDATE:
                self._in_hand = order
                return
            if order.kind == library.STOP:
                self.leave()
                raise Stopped(0)
            if order.kind in (library.STEP, library.GRADIENT):
                self._in_hand = order  # the run went back: this step does not count
                raise RuntimeError("the run went back to an earlier state inside a step; start the trainer again")
            if order.kind != library.NONE:
                self._carry_out(order)

    def done(self, loss: Any = None, samples: Optional[int] = None, tokens: Optional[int] = None, **metrics: Any) -> None:
        """A step is done: forward, backward and the optimiser's.

        loss     its mean training loss, a number or a tensor with one element, which is not looked at before it has to be; None: unknown
        samples  that it has taken from this part of the data, of all ranks together; must be given
        tokens   if they are not samples × [trainer].tokens_per_sample
        metrics  at most 32 numbers of your own: the mean of those since the last report goes to `status` and the tape; `island.metrics` has
                 the newest
        Errors: ValueError for more metrics than 32; TypeError without samples.
        """
        samples = samples_of(samples)
        order, self._in_hand = self._in_hand, None
        if order is None:
            raise Misused("island.done() without a step: loop over island.steps()")
        if order.kind == library.GRADIENT:
            raise Misused("the run's strategy exchanges gradients: call island.reduce_gradients(loss, samples=…) before opt.step()")
        if order.kind == library.STEP and loss is not None:
            self._losses.append(loss)
        self._note(metrics)
        self.step += 1
        self.position += samples
        self._stood = self.step
        try:
            self._trainer.answer(
                samples=samples, tokens=samples * self._tokens_per_sample if tokens is None else tokens, enough=self._take_enough()
            )
        except LinkError as failure:
            self._ended(failure)

    def enough(self, why: str) -> None:
        """The model is good enough: all islands stand after the next round, and the run is completed there. Goes out with the next done()."""
        self._enough = why

    def _take_enough(self) -> Optional[str]:
        why, self._enough = self._enough, None
        return why

    def _note(self, metrics: Mapping[str, Any]) -> None:
        if len(metrics) > _MOST_METRICS:
            raise Refused(f"{len(metrics)} metrics are given, at most {_MOST_METRICS} are taken")
        self.metrics = dict(metrics) if metrics else self.metrics
        for name, value in metrics.items():
            self._metrics.setdefault(name, []).append(value)

    def _take_reported(self) -> tuple:
        """Losses and metrics of the steps since the last report."""
        losses, metrics = self._losses, dict(list(self._metrics.items())[:_MOST_METRICS])
        self._losses, self._metrics = [], {}
        return losses, metrics

    def leave(self) -> None:
        """Disconnects. steps() does it at its end."""
        self._begun.clear()
        try:
            self._answer_saved(wait=True)
        finally:
            self._arena = None  # which is unmapped now
            self._trainer.leave()
            while self._listeners:
                self._listeners.pop().end()

    def prepare(self, what: str) -> None:
        """Says what the program is doing before it is ready: "compiling the model". It shows in the agent's log. Later: what it is about to do that may
        take longer than a step; its silence is no hang then, until it is done with the step in hand."""
        self._trainer.prepare(what)

    def fail(self, why: str, permanent: bool = False) -> None:
        """Tells the agent why the program is about to end; permanent: it would fail again, so it is not started again."""
        self._trainer.fail(why, permanent)

    # ---- orders

    def _carry_out(self, order: Order) -> None:
        kind = order.kind
        answer: dict[str, Any] = {}
        if kind == library.REPORT:
            losses, metrics = self._take_reported()
            answer["losses"] = self._losses_of(losses)
            answer["metrics"] = {name: float(numpy.mean(self._numbers(values))) for name, values in metrics.items()}
            if order.wants_norm:
                answer["norm"] = self._norm()
        elif kind == library.STAND_AT:
            self.step, self.position = order.step, order.position
        elif kind == library.EVALUATE:
            answer = self._evaluated()
        elif kind == library.SAVE:
            answer = self._begin_to_save(order.directory)
        else:
            self._copy(order)
        self._hear(kind, self.step, answer)
        self._trainer.answer(**answer)

    def _hear(self, kind: int, step: int, answer: Mapping[str, Any]) -> None:
        for listener in self._listeners if kind in (library.REPORT, library.EVALUATE) else ():
            listener.hear(step, kind == library.EVALUATE, answer)

    def _evaluated(self) -> dict[str, Any]:
        """What an evaluation is answered with. Training goes on where it fails: it has no loss then. Ranks that share one fail together."""
        try:
            loss = self._evaluate() if self._evaluate else None
            metrics: Mapping[str, Any] = {}
            if isinstance(loss, tuple):
                loss, metrics = loss
            said = {"metrics": {name: self._numbers([value])[0] for name, value in metrics.items()}}
            return {**said, "loss": None if loss is None else self._numbers([loss])[0], "batches": 0 if loss is None else 1}
        except Exception:
            if self.ranks > 1:
                raise
            print("atoll: the evaluation failed, and the training goes on without its loss:", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            return {"loss": None, "batches": 0}

    def _begin_to_save(self, directory: str) -> dict[str, Any]:
        """What an order to save is answered with: the state is written, or a thread writes it as it is now."""
        if not self._saves_beside():
            return {"error": self._try_to_save(directory)}
        write = self._to_save(True)
        if write is not None:
            self._saver.begin(write, directory)
        return {"answered": library.BEGUN}

    def _try_to_save(self, directory: str) -> Optional[str]:
        try:
            self._save(directory)
        except OSError as failure:
            return str(failure)
        return None

    def _copy(self, order: Order) -> None:
        for entry in self._entries[order.fragment]:
            values = self._arena[entry.offset : entry.offset + entry.count]
            if order.kind == library.WRITE:
                self._write(entry.parameter, values)
            elif order.kind == library.FETCH:
                self._fetch(entry.parameter, values)
            elif order.kind == library.MERGE:
                self._merge(entry.parameter, values, order.alpha)
            elif order.kind == library.WRITE_GRADIENT:
                self._write_gradient(entry.parameter, values)
            else:
                self._read_gradient(entry.parameter, values)

    def dataset(self, items: Any) -> "Dataset":
        """This island's part of a data set with a length and an index, in the run's order; it follows islands that come and go."""
        return Dataset(items, self)


class Dataset:
    """What of `items` is this island's. In every pass all items come once, on one island or another, in an order of the run's seed. Which
    come is a function of `island.position` alone, so a run that goes on continues with the next ones; as islands come and go, those that are
    there share all of the items from then on."""

    def __init__(self, items: Any, island: Island, shuffle: bool = True):
        self._items, self._island, self._shuffle = items, island, shuffle
        self._pass = -1
        self._order: list[int] = []
        if not len(items):
            raise Refused("the data set has no items")

    def __len__(self) -> int:
        """Items that come in a pass, on all islands together."""
        return len(self._items)

    def indices(self, position: int, count: int) -> list[int]:
        """Into `items`: the `count` samples from that position on."""
        found = []
        for place in range(position, position + count):
            number, at = divmod(self._island.share.sample(place), len(self._items))
            if number != self._pass:
                self._pass, self._order = number, list(range(len(self._items)))
                if self._shuffle:
                    random.Random(f"{self._island.seed}/{number}").shuffle(self._order)
            found.append(self._order[at])
        return found

    def at(self, position: int, count: int) -> list[Any]:
        """The samples of this rank in a batch of `count` from that position on."""
        island = self._island
        return [self._items[index] for index in self.indices(position, count)[island.rank :: island.ranks]]


def digest_of(chunks: Iterator[bytes]) -> str:
    """SHA-256 of bytes, hexadecimal."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
