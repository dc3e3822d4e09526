"""Ranks of a PyTorch program that do not talk to the agent, and the end of what ranks talk through."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Mapping

import numpy
import torch
import torch.distributed as distributed


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
