"""Ranks of a PyTorch program that do not talk to the agent, and the end of what ranks talk through."""

from __future__ import annotations

from typing import Any, Mapping

import numpy
import torch
import torch.distributed as distributed


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
