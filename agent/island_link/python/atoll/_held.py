"""Arrays that a loop has given by their names, and may have put others in the place of."""

from __future__ import annotations

import sys
from typing import Any, Iterator, Mapping, Sequence

import numpy

from ._island import Refused, refuse_type


def _share(one: numpy.ndarray, two: numpy.ndarray) -> bool:
    try:
        return bool(numpy.shares_memory(one, two, max_work=100_000))
    except Exception:  # TooHardError, of views of many strides
        return True


def _over_each_other(arrays: Sequence[numpy.ndarray]) -> Iterator[tuple[int, int]]:
    """Numbers of two over the same memory, the lower first. Only those whose bytes from the first to the last overlap are compared: there may be
    a hundred thousand arrays."""
    spans = []
    for number, array in enumerate(arrays):
        ends = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
        begin = array.__array_interface__["data"][0] + sum(min(0, end) for end in ends)
        spans.append((begin, begin + sum(map(abs, ends)) + array.itemsize, number))
    spans = sorted(span for span in spans if arrays[span[2]].size)
    for at, (_, end, number) in enumerate(spans):
        for begin, _, other in map(spans.__getitem__, range(at + 1, len(spans))):
            if begin >= end:
                break
            if _share(arrays[number], arrays[other]):
                yield min(number, other), max(number, other)


class Held:
    """arrays: in the order of the names; where the loop's dict has another of the same shape now, that one. Errors: Refused by name for what
    is no array that can be changed in place."""

    def __init__(self, given: Mapping[str, Any], what: str):
        self._what = what
        self.arrays = [given[name] for name in given]
        self._given: dict[str, Any] = given if isinstance(given, dict) else dict(zip(given, self.arrays))
        for name, array in zip(self._given, self.arrays):
            if not isinstance(name, str):
                raise Refused(f"a {what}'s name is {name!r}, of type {type(name).__name__}: the name of each {what} is a text")
            if not isinstance(array, numpy.ndarray):
                raise Refused(
                    f"{what} '{name}' is of type {type(array).__name__}, which cannot be changed in place: give an array, numpy.array({array!r}) of a number"
                    if numpy.isscalar(array)
                    else f"{what} '{name}' is of type {type(array).__name__}, not a NumPy array"
                )
            refuse_type(name, array.dtype.name)
            if not array.flags.writeable:
                raise Refused(f"{what} '{name}' is read-only, and cannot be changed in place: give numpy.array(…) of it, which is a copy")
            if isinstance(array, numpy.ma.MaskedArray):
                raise Refused(f"{what} '{name}' is a masked array, whose mask a result would take away: give its data, and keep the mask beside them")
        self._names = list(self._given)
        for one, two in _over_each_other(self.arrays):
            raise Refused(
                f"{what}s '{self._names[one]}' and '{self._names[two]}' lie over the same memory, and the islands would share two values of what is one: give one, or a copy"
            )
        self._with_loop: set[int] = set()  # what the loop had itself when it was last looked at
        # What is held exactly as `_given` and `arrays` hold theirs, and by nobody else.
        self._as_given = {"": numpy.zeros(1)}
        self._as_arrays = list(self._as_given.values())

    def follow(self) -> None:
        """Before an exchange. Errors: Refused by name for an array of another shape, and for one that the loop has no more: nobody trains it."""
        for index, name in enumerate(self._names):
            array, shape = self._given.get(name), self.arrays[index].shape
            if array is not self.arrays[index]:
                if not isinstance(array, numpy.ndarray) or array.shape != shape or not array.flags.writeable:
                    raise Refused(f"{self._what} '{name}' was declared with shape {shape}, and is {getattr(array, 'shape', type(array).__name__)} now")
                refuse_type(name, array.dtype.name)
                self.arrays[index] = array
        array = None
        if hasattr(sys, "getrefcount") and sys.getrefcount(self._given) <= sys.getrefcount(self._as_given):
            for index, name in enumerate(self._names):
                if self.arrays[index].base is not None or sys.getrefcount(self.arrays[index]) > sys.getrefcount(self._as_arrays[0]):
                    self._with_loop.add(index)
                elif index in self._with_loop:
                    raise Refused(
                        f"{self._what} '{name}' is an array that the loop has no more: it has put another in its place, of which the islands would not hear; "
                        f"change it in place ({name} -= …, {name}[...] = …), or give start() the dict that the loop changes"
                    )
