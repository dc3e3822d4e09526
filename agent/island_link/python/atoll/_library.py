"""libatoll_trainer.so by ctypes: its types, its functions, its errors. See atoll_trainer.h."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import pathlib
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy

from ._program import misfit

(NONE, STOP, STEP, GRADIENT, UPDATE, REPORT, WRITE, WRITE_GRADIENT, MERGE, READ_GRADIENT, STAND_AT, EVALUATE, SAVE, FETCH) = range(14)


class LinkError(RuntimeError):
    """The agent is gone, refuses something, or broke the protocol. `gone` tells the first from the rest."""

    def __init__(self, why: str, gone: bool = False):
        super().__init__(why)
        self.gone = gone


class _Parameter(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_uint64)),
        ("dimensions", ctypes.c_size_t),
        ("block", ctypes.c_int32),
        ("buffer", ctypes.c_int32),
    ]


class _Entry(ctypes.Structure):
    _fields_ = [("parameter", ctypes.c_uint32), ("fragment", ctypes.c_uint32), ("offset", ctypes.c_uint64), ("count", ctypes.c_uint64)]


class _Order(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("fragment", ctypes.c_uint32),
        ("step", ctypes.c_uint64),
        ("position", ctypes.c_uint64),
        ("free_until", ctypes.c_uint64),
        ("alpha", ctypes.c_double),
        ("wants_norm", ctypes.c_int32),
        ("fetched", ctypes.c_int32),
        ("directory", ctypes.c_char_p),
        ("progress", ctypes.c_double),
        ("deals", ctypes.c_uint64),
    ]


BUFFER_MEAN, BUFFER_ONE = 1, 2  # atoll_parameter.buffer
WHOLE, BEGUN, ENDED, SAVED = range(4)  # atoll_answer.answered
LEFT, COMPLETE, COMPLETE_FIRST = range(3)  # atoll_trainer_end()


class _Metric(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class _Answer(ctypes.Structure):
    _fields_ = [
        ("steps", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("tokens", ctypes.c_uint64),
        ("losses", ctypes.POINTER(ctypes.c_double)),
        ("losses_count", ctypes.c_size_t),
        ("norm", ctypes.c_double),
        ("has_loss", ctypes.c_int32),
        ("loss", ctypes.c_double),
        ("batches", ctypes.c_uint32),
        ("answered", ctypes.c_int32),
        ("error", ctypes.c_char_p),
        ("metrics", ctypes.POINTER(_Metric)),
        ("metrics_count", ctypes.c_size_t),
        ("enough", ctypes.c_char_p),
    ]


class Order(NamedTuple):
    """What is to be done next; see the table of kinds in atoll_trainer.h."""

    kind: int
    fragment: int = 0
    step: int = 0
    position: int = 0
    free_until: int = 0
    alpha: float = 0.0
    wants_norm: bool = False
    fetched: bool = False
    directory: str = ""
    progress: float = 0.0
    data: Optional[Mapping[str, Any]] = None  # of the configuration, if they were dealt anew
    end: int = LEFT  # of STOP: how the run has ended


class Entry(NamedTuple):
    """Where a parameter lies: `count` float32 elements of the arena from `offset` on."""

    parameter: int
    fragment: int
    offset: int
    count: int


def _places() -> Sequence[str]:
    here = pathlib.Path(__file__).resolve()
    places = [os.environ.get("ATOLL_TRAINER_LIBRARY", "")]
    places += [str(here.parent / "libatoll_trainer.so")]
    places += [str(path) for parent in here.parents for path in parent.glob("build/*/libatoll_trainer.so") if not misfit(str(path))]
    return [place for place in places if place] + ["libatoll_trainer.so.1", ctypes.util.find_library("atoll_trainer") or "libatoll_trainer.so"]


def _load() -> ctypes.CDLL:
    failures = []
    for place in _places():
        unfit = misfit(place) if "/" in place and os.path.isfile(place) else ""
        if unfit:
            raise LinkError(f"{place} {unfit}")
        try:
            library = ctypes.CDLL(place)
        except OSError as failure:
            failures.append(str(failure))
            continue
        pointer = ctypes.c_void_p
        library.atoll_trainer_join.restype = pointer
        library.atoll_trainer_join.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        library.atoll_trainer_configuration.restype = ctypes.c_char_p
        library.atoll_trainer_configuration.argtypes = [pointer]
        library.atoll_trainer_declare.argtypes = [pointer, ctypes.POINTER(_Parameter), ctypes.c_size_t, ctypes.c_char_p]
        library.atoll_trainer_arena.restype = ctypes.POINTER(ctypes.c_float)
        library.atoll_trainer_arena.argtypes = [pointer]
        library.atoll_trainer_entries.restype = ctypes.POINTER(_Entry)
        library.atoll_trainer_entries.argtypes = [pointer, ctypes.POINTER(ctypes.c_size_t)]
        library.atoll_trainer_ready.argtypes = [pointer, ctypes.c_uint64]
        library.atoll_trainer_next.argtypes = [pointer, ctypes.c_int, ctypes.POINTER(_Order)]
        library.atoll_trainer_answer.argtypes = [pointer, ctypes.POINTER(_Answer)]
        library.atoll_trainer_end.argtypes = [pointer]
        library.atoll_trainer_fail.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int]
        library.atoll_trainer_prepare.argtypes = [pointer, ctypes.c_char_p]
        library.atoll_trainer_why.restype = ctypes.c_char_p
        library.atoll_trainer_why.argtypes = [pointer]
        library.atoll_trainer_leave.restype = None
        library.atoll_trainer_leave.argtypes = [pointer]
        return library
    raise LinkError("libatoll_trainer.so is not found; install Atoll, or set ATOLL_TRAINER_LIBRARY to the file: " + "; ".join(failures))


def path_of_library() -> str:
    """What a program would take. Errors: LinkError, or AttributeError for one of another version."""
    return str(_load()._name)


class Trainer:
    """One connection to an agent."""

    def __init__(self, path: Optional[str], name: str, version: str, ranks: int):
        self._library = _load()
        why = ctypes.create_string_buffer(1000)
        joined = self._library.atoll_trainer_join(path.encode() if path else None, name.encode(), version.encode(), ranks, why, len(why))
        if not joined:
            raise LinkError(why.value.decode(errors="replace"), gone=True)
        self._trainer = ctypes.c_void_p(joined)
        self._order = _Order()
        self._deals = 0
        self.configuration = self._configuration()

    def _configuration(self) -> Mapping[str, Any]:
        read: Mapping[str, Any] = json.loads(self._library.atoll_trainer_configuration(self._trainer))
        return read

    def _check(self, code: int) -> None:
        if code != 0:
            raise LinkError(self._library.atoll_trainer_why(self._trainer).decode(errors="replace"), gone=code == -1)

    def declare(self, parameters: Sequence[tuple], description: Optional[str]) -> tuple[numpy.ndarray, list[Entry]]:
        """Takes (name, shape, block, buffer) of each parameter; gives the arena, float32 [n], and the entries in the arena's order.
        buffer: 0 of what is trained, else BUFFER_MEAN or BUFFER_ONE."""
        shapes = [(ctypes.c_uint64 * max(1, len(shape)))(*shape) for _, shape, _, _ in parameters]
        array = (_Parameter * len(parameters))(
            *[_Parameter(name.encode(), shape, len(given), block, buffer) for (name, given, block, buffer), shape in zip(parameters, shapes)]
        )
        self._check(self._library.atoll_trainer_declare(self._trainer, array, len(parameters), description.encode() if description else None))
        count = ctypes.c_size_t()
        found = self._library.atoll_trainer_entries(self._trainer, ctypes.byref(count))
        entries = [Entry(e.parameter, e.fragment, e.offset, e.count) for e in found[: count.value]]
        length = max(entry.offset + entry.count for entry in entries)
        arena = numpy.ctypeslib.as_array(self._library.atoll_trainer_arena(self._trainer), shape=(length,))
        return arena, entries

    def arena_path(self) -> str:
        """Of the arena's file, for other processes of this machine to map."""
        return str(self._configuration().get("arena", ""))

    def ready(self, tokens_available: int) -> None:
        self._check(self._library.atoll_trainer_ready(self._trainer, tokens_available))

    def next(self, timeout_ms: int) -> Order:
        order = self._order
        self._check(self._library.atoll_trainer_next(self._trainer, timeout_ms, ctypes.byref(order)))
        return Order(
            order.kind,
            order.fragment,
            order.step,
            order.position,
            order.free_until,
            order.alpha,
            order.wants_norm != 0,
            order.fetched != 0,
            order.directory.decode() if order.directory else "",
            order.progress,
            self._dealt(order.deals),
            self._library.atoll_trainer_end(self._trainer) if order.kind == STOP else LEFT,
        )

    def _dealt(self, deals: int) -> Optional[Mapping[str, Any]]:
        if deals == self._deals:
            return None
        self._deals = deals
        self.configuration = self._configuration()
        data: Mapping[str, Any] = self.configuration.get("data") or {}
        return data

    def answer(
        self,
        steps: int = 0,
        samples: int = 0,
        tokens: int = 0,
        losses: Sequence[float] = (),
        norm: float = 0.0,
        loss: Optional[float] = None,
        batches: int = 0,
        error: Optional[str] = None,
        metrics: Mapping[str, float] = {},
        enough: Optional[str] = None,
        answered: int = WHOLE,
    ) -> None:
        answer = _Answer(steps, samples, tokens)
        if losses:
            answer.losses = (ctypes.c_double * len(losses))(*losses)
            answer.losses_count = len(losses)
        answer.norm = norm
        if loss is not None:
            answer.has_loss, answer.loss = 1, loss
        answer.batches = batches
        answer.answered = answered
        answer.error = error.encode() if error else None
        if metrics:
            answer.metrics = (_Metric * len(metrics))(*[_Metric(name.encode(), value) for name, value in metrics.items()])
            answer.metrics_count = len(metrics)
        answer.enough = enough.encode() if enough else None
        self._check(self._library.atoll_trainer_answer(self._trainer, ctypes.byref(answer)))

    def prepare(self, what: str) -> None:
        self._check(self._library.atoll_trainer_prepare(self._trainer, what.encode()))

    def fail(self, why: str, permanent: bool) -> None:
        self._library.atoll_trainer_fail(self._trainer, why.encode(), int(permanent))

    held: Any = None  # closed with the connection

    def leave(self) -> None:
        if self.held is not None:
            self.held.close()
            self.held = None
        if self._trainer:
            self._library.atoll_trainer_leave(self._trainer)
            self._trainer = ctypes.c_void_p()
