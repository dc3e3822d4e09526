"""An exponential moving average of a model's parameters that stands at the run's step.

After each step a <- d·a + (1 - d)·p. It is shared as a buffer is: after a round all islands have the mean of their averages, which is the average
of the mean, for it is linear. A round brings it to those who join late, too; where steps are left out without one, they count as steps that
ended with the parameters as they are.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import torch

from ._island import Refused

PREFIX = "average."  # of its tensors in what the islands share, and in an export


class Average:
    """decay: d, at least 0 and below 1. tensors: by the parameters' names. Errors: Refused for another decay."""

    def __init__(self, decay: float, parameters: Mapping[str, torch.Tensor]):
        if not 0 <= decay < 1:
            raise Refused(f"average is {decay}; the decay of an average is at least 0 and below 1, as 0.999")
        self._decay = decay
        self.tensors = {name: parameter.detach().float().clone() for name, parameter in parameters.items()}
        self._at: Optional[int] = None  # the step after which it stands; None: not begun
        self._merged = False  # since then: it came with the run's step, wherever that is

    def follow(self, parameters: Mapping[str, torch.Tensor], step: int) -> None:
        """`parameters`: as they are after that step."""
        steps, merged = step - (step if self._at is None else self._at), self._merged
        first, self._at, self._merged = self._at is None, step, False
        if (first and not merged) or (steps > 0 and not (merged and steps > 1)):
            share = 1.0 if first else 1 - self._decay**steps
            with torch.no_grad():
                for name, tensor in self.tensors.items():
                    tensor.lerp_(parameters[name].detach().to(tensor.dtype), share)

    def merged(self) -> None:
        self._merged = True

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": self.tensors, "at": self._at}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(saved["tensors"][name])
        self._at = saved["at"]
