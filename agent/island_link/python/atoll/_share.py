"""Which samples of a data set are this island's, as transport/base/data_share.hpp defines it."""

from __future__ import annotations

from typing import Any, Mapping, Sequence


class Share:
    """`data` of a configuration. Samples of the run are numbered from 0 over all passes; `sample(position)` is the number of the one that
    comes at that position of this island's own count."""

    def __init__(self, data: Mapping[str, Any]):
        self._classes: int = data.get("classes", 1)
        self._part: int = data.get("part", 0)
        self._parts: int = data.get("parts", 1)
        self._stretches: Sequence[Mapping[str, Any]] = data.get("stretches") or []

    def sample(self, position: int) -> int:
        for stretch in reversed(self._stretches):
            if stretch["from"] <= position and stretch["classes"]:
                return self._in_stretch(stretch, position - stretch["from"])
        return position * self._parts + self._part

    def _in_stretch(self, stretch: Mapping[str, Any], place: int) -> int:
        begins = sorted(each["next"] for each in stretch["classes"])
        row = begins[0]
        for taking in range(1, len(begins) + 1):
            if taking == len(begins) or place < taking * (begins[taking] - row):
                break
            place -= taking * (begins[taking] - row)
            row = begins[taking]
        row, of_row = row + place // taking, place % taking
        there = [each["number"] for each in stretch["classes"] if each["next"] <= row]
        return row * self._classes + there[of_row]
