"""Optimisers that keep a copy of the parameters and write them anew from it: what the islands agree on would be gone with their next steps."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping

import torch

from ._island import Refused
from ._shards import local

_FEW = 4096  # values of a tensor that are compared, from all over it
_ENOUGH = 32  # fewer values, of all parameters together, may lie close by chance
_LOOKS = 16  # steps within which what moves with the parameters has moved


def _few(tensor: torch.Tensor) -> torch.Tensor:
    values = local(tensor).reshape(-1)
    return values[:: max(1, values.numel() // _FEW)].double().cpu()


class Copies:
    """Looks after the steps 1, 2, 4, 8 and 16: at the first for what lies where the parameters do, later for what has gone with them. An exact copy
    in a wider type is one at once. A momentum is no copy: where it is as large as the parameters (of half their square, it is them), it has their
    direction; what stays where the parameters began is none, as Prodigy's `p0`, nor is an average that no step reads, as ASGD's `ax`."""

    def __init__(self) -> None:
        self._steps, self._stateless, self.looks = 0, 0, True
        self._beside: dict[tuple[int, str], list[torch.Tensor]] = {}

    def look(self, parameters: Mapping[str, torch.Tensor], optimizers: Iterable[Any]) -> None:
        """After each step, while `looks`. Errors: Refused with the optimiser's number and the name of what it keeps."""
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
            kept: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
            for name, one in parameters.items():
                for key, value in self._like(one, number, optimizer):
                    wide = one.is_floating_point() and value.element_size() > one.element_size()
                    if self._steps == 1 and wide and bool(local(one).any()) and torch.equal(local(value).to(one.dtype), local(one)):
                        raise Refused(
                            f"optimizer {number} keeps a copy of parameter '{name}' in its state ('{key}'), from which it would undo what the islands agree on: "
                            "have the parameters themselves in float32, under torch.autocast"
                        )
                    kept.setdefault(key, []).append((one, value))
            for key, pairs in kept.items():
                self._look_at(number, key, pairs)

    def _like(self, one: torch.Tensor, number: int, optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
        for key, value in (optimizer.state.get(one) or {}).items():
            if isinstance(value, torch.Tensor) and value.shape == one.shape and value.is_floating_point() and (self._steps == 1 or (number, str(key)) in self._beside):
                yield str(key), value

    def _look_at(self, number: int, key: str, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        values = [_few(value) for _, value in pairs]
        if self._steps == 1:
            ones, others = torch.cat([_few(one) for one, _ in pairs]), torch.cat(values)
            size, product = float(ones @ ones), float(ones @ others)
            beside = float((ones - others) @ (ones - others)) <= 0.01 * size and 1 - product**2 / (size * float(others @ others) or 1.0) > 1e-11
            if len(ones) >= _ENOUGH and (beside or torch.equal(ones, others)):
                self._beside[number, key] = values
        elif any(not torch.equal(now, before) for now, before in zip(values, self._beside[number, key])):
            raise Refused(
                f"optimizer {number} keeps positions of its own beside the parameters ('{key}' in its state), to which it would draw back what the islands agree "
                "on: take an optimiser whose state is of gradients, as Adam's is"
            )
