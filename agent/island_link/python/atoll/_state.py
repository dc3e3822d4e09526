"""What a program saves beside its parameters: a tree of dicts and lists whose leaves know their state, or are plain values.

Objects are restored in place, by load_state_dict and its like. Plain values are restored in the dict or list that holds them.
"""

from __future__ import annotations

import random
from typing import Any, Iterator, Mapping, MutableMapping, MutableSequence

import numpy

from ._island import Refused

_PLAIN = (bool, int, float, complex, str, bytes, type(None), numpy.generic)


def _pair(value: Any) -> Any:
    """(get, set) of an object that knows its state, else None."""
    if isinstance(value, type):
        return None
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return value.state_dict, value.load_state_dict
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    if isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        bits = value.bit_generator if isinstance(value, numpy.random.Generator) else None
        if bits is None:
            return value.get_state, value.set_state
        return (lambda: bits.state), (lambda state: setattr(bits, "state", state))
    if type(value).__name__ == "Generator" and hasattr(value, "get_state") and hasattr(value, "set_state"):
        return value.get_state, value.set_state  # torch's
    if hasattr(value, "copy_") and hasattr(value, "detach"):  # a tensor
        return (lambda: value.detach().clone()), (lambda saved: value.detach().copy_(saved))
    if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        return value.copy, (lambda saved: numpy.copyto(value, saved))
    return None


def _children(value: Any) -> Any:
    """(key, value) of what a dict or list holds, else None. A dict with a state of its own is a leaf."""
    if _pair(value) is not None:
        return None
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple, MutableSequence)):
        return list(enumerate(value))
    return None


def leaves(value: Any, path: str = "state") -> Iterator[tuple[str, Any, Any]]:
    """(path, leaf, what holds it)."""

    def walk(value, path, holder, above):
        if id(value) in above:
            raise Refused(f"{path} holds itself")
        children = _children(value)
        if children is None:
            yield path, value, holder
            return
        for key, child in children:
            yield from walk(child, f"{path}[{key!r}]", value, above | {id(value)})

    return walk(value, path, None, frozenset())


def _is_shuffled_stream(leaf: Any) -> bool:
    """One of `datasets`, or a loader of one: of what waits in the buffer that it draws from its state has nothing."""
    inner = getattr(getattr(leaf, "dataset", leaf), "_ex_iterable", None)
    while inner is not None and type(inner).__name__ != "BufferShuffledExamplesIterable":
        inner = getattr(inner, "ex_iterable", None)
    return inner is not None


def check(value: Any, path: str = "state") -> None:
    """Errors: Refused with the path of the first leaf that could not be saved or restored."""
    for where, leaf, holder in leaves(value, path):
        if _is_shuffled_stream(leaf):
            raise Refused(
                f"{where} is a shuffled stream, and what waits in its buffer is lost with the process: leave shuffle() out, or give island.loader() the "
                "data with an index, which shuffles by the run's seed"
            )
        if _pair(leaf) is not None:
            continue
        if not isinstance(leaf, _PLAIN):
            raise Refused(
                f"{where} is of type {type(leaf).__name__}, which has no state_dict() and load_state_dict(), and is no plain value: it cannot be saved"
            )
        if leaf is not None and holder is not None and not isinstance(holder, (MutableMapping, MutableSequence)):
            raise Refused(f"{where} is a plain value in a {type(holder).__name__}, where it cannot be restored; hold it in a dict or a list")


def capture(value: Any) -> Any:
    children = _children(value)
    if children is not None:
        kept = [(key, capture(child)) for key, child in children]
        return dict(kept) if isinstance(value, Mapping) else [child for _, child in kept]
    pair = _pair(value)
    return pair[0]() if pair else value


def objects(value: Any) -> list[str]:
    """Paths of what has a state of its own."""
    return [path for path, leaf, _ in leaves(value) if callable(getattr(leaf, "load_state_dict", None))]


def _resize(value: Any, saved: Any, path: str, known: Any) -> None:
    """A dict or list that has grown or become shorter since it was given has what it had. Plain values come and go by themselves; objects do not."""
    if isinstance(value, Mapping) and isinstance(saved, Mapping):
        more = [key for key in saved if key not in value]
    elif isinstance(value, (list, tuple, MutableSequence)) and isinstance(saved, (list, tuple)):
        more = list(range(len(value), len(saved)))
        while len(value) > len(saved) and isinstance(value, MutableSequence) and isinstance(value[-1], _PLAIN):
            value.pop()
    else:
        return
    for key in more:
        where = f"{path}[{key!r}]"
        if known is None or any(each.startswith(where) for each in known) or not isinstance(value, (MutableMapping, MutableSequence)):
            raise Refused(f"the checkpoint has {where}, and this program has not: what is saved with a state of its own is given to start() from the beginning")
        if isinstance(value, MutableMapping):
            value[key] = saved[key]
        else:
            value.append(saved[key])


def restore(value: Any, saved: Any, path: str = "state", known: Any = None) -> None:
    """known: objects() of what was saved; None: all that was saved is an object. Errors: Refused if `saved` is of another tree."""
    children = _children(value)
    if children is not None:
        _resize(value, saved, path, known)
    for key, child in _children(value) or []:
        where = f"{path}[{key!r}]"
        try:
            found = saved[key]
        except (KeyError, IndexError, TypeError):
            raise Refused(f"the checkpoint has no {where}: it is of another program or another state=") from None
        if _children(child) is not None:
            restore(child, found, where, known)
        elif _pair(child):
            _pair(child)[1](found)
        elif isinstance(value, (MutableMapping, MutableSequence)):
            value[key] = found


def restore_whole(value: Any, saved: Any, path: str) -> None:
    """As restore(), of a tree that may be a single object, or nothing."""
    if value is not None:
        restore({path: value}, {path: saved}, "the")
