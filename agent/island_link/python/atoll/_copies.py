"""Optimisers that keep a copy of the parameters and write them anew from it: what the islands agree on would be gone with their next steps."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import torch

from ._island import Refused
from ._shards import local

_FEW = 1024  # values of a tensor that are compared, from all over it
_ENOUGH = 32  # fewer values, of all parameters together, may lie close by chance
_LOOKS = 16  # steps within which what moves with the parameters has moved


def _few(tensor: torch.Tensor) -> torch.Tensor:
    values = local(tensor).reshape(-1)
    return values[:: max(1, values.numel() // _FEW)].double().clone()


class Copies:
    """Looks after the steps 1, 2, 4, 8 and 16: at the first for what lies where the parameters do, later for what has gone with them. An exact copy
    in a wider type is one at once. A momentum is no copy: where it is as large as the parameters (of half their square, it is them), it has their
    direction; what stays where the parameters began is none, as Prodigy's `p0`, nor is an average that no step reads, as ASGD's `ax`.

    What look() finds stays on the device, for which it does not wait; judge() reads it, and says it."""

    def __init__(self) -> None:
        self._steps, self._stateless, self.looks = 0, 0, True
        self._values: dict[tuple[int, str], list[torch.Tensor]] = {}  # as they were after the first step
        self._found: list[tuple[int, str, list[str], torch.Tensor]] = []  # names: of the parameters, at the first look

    def look(self, parameters: Mapping[str, torch.Tensor], optimizers: Iterable[Any]) -> None:
        """After each step, while `looks`."""
        optimizers = list(optimizers)
        if not any(optimizer.state for optimizer in optimizers):
            self._stateless += 1
            self.looks = self._stateless < _LOOKS
            return
        self._steps += 1
        if self._steps & (self._steps - 1):
            return
        self.looks = self._steps < _LOOKS
        for number, optimizer in enumerate(optimizers):
            if isinstance(optimizer, torch.optim.ASGD):
                continue
            kept: dict[str, list[tuple[str, torch.Tensor, torch.Tensor]]] = {}
            for name, one in parameters.items():
                for key, value in (optimizer.state.get(one) or {}).items():
                    if isinstance(value, torch.Tensor) and value.shape == one.shape and value.is_floating_point() and one.is_floating_point():
                        kept.setdefault(str(key), []).append((name, one, value))
            for key, pairs in kept.items():
                if self._steps == 1:
                    self._first_look(number, key, pairs)
                elif (number, key) in self._values and len(pairs) == len(self._values[number, key]):
                    moved = [(_few(value) != before).any() for (_, _, value), before in zip(pairs, self._values[number, key])]
                    self._found.append((number, key, [], torch.stack(moved).any().double().reshape(1)))

    def _first_look(self, number: int, key: str, pairs: list[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
        ones, others = torch.cat([_few(one) for _, one, _ in pairs]), torch.cat([_few(value) for _, _, value in pairs])
        apart = ones - others
        copies = [
            (local(value).to(one.dtype) == local(one)).all() & local(one).any() if value.element_size() > one.element_size() else apart.new_zeros(()).bool()
            for _, one, value in pairs
        ]
        figures = [ones @ ones, ones @ others, others @ others, apart @ apart, apart.new_tensor(float(len(ones)))]
        self._values[number, key] = [_few(value) for _, _, value in pairs]
        self._found.append((number, key, [name for name, _, _ in pairs], torch.cat([torch.stack(figures), torch.stack(copies).double()])))

    def judge(self) -> None:
        """Errors: Refused with the optimiser's number and the name of what it keeps."""
        found, self._found = self._found, []
        for number, key, names, figures in found:
            told = figures.tolist()
            if names:
                self._judge_first(number, key, names, told)
            elif told[0] and (number, key) in self._values:
                raise Refused(
                    f"optimizer {number} keeps positions of its own beside the parameters ('{key}' in its state), to which it would draw back what the islands agree "
                    "on: take an optimiser whose state is of gradients, as Adam's is"
                )

    def _judge_first(self, number: int, key: str, names: list[str], told: list[float]) -> None:
        size, product, other_size, apart, count = told[:5]
        for name, copied in zip(names, told[5:]):
            if copied:
                raise Refused(
                    f"optimizer {number} keeps a copy of parameter '{name}' in its state ('{key}'), from which it would undo what the islands agree on: "
                    "have the parameters themselves in float32, under torch.autocast"
                )
        beside = apart <= 0.01 * size and 1 - product**2 / (size * other_size or 1.0) > 1e-11
        if count < _ENOUGH or not (beside or (apart == 0 and size > 0)):
            del self._values[number, key]
