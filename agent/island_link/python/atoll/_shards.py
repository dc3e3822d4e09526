"""Parameters that are sharded over the ranks of one trainer (FSDP2, DTensor): each rank copies its own boxes, and nobody gathers.

Ranks on the agent's machine map the arena. On every other machine one rank, the lowest, keeps a mirror of the arena that its ranks map,
and exchanges with rank 0 the boxes of its machine. Rank 0 talks to the agent.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence

import numpy
import torch
import torch.distributed as distributed

from ._island import Refused
from ._library import Entry

_EXACT = "Shard", "Replicate"


class Box(NamedTuple):
    """A rank's part of a parameter: from `start` on, `length` elements, in each dimension. `writes`: this rank copies it into the arena
    (of replicas one does)."""

    start: tuple
    length: tuple
    writes: bool

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """This box of a whole parameter, as a view."""
        return values[tuple(slice(first, first + count) for first, count in zip(self.start, self.length))]

    def elements(self) -> int:
        return int(numpy.prod(self.length, dtype=numpy.int64))


def is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "placements") and hasattr(tensor, "device_mesh")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it; shares its memory."""
    tensor = tensor.detach()
    return tensor.to_local() if is_sharded(tensor) else tensor


def plain(state: Any) -> Any:
    """A state_dict with this rank's shards where it has sharded tensors."""
    if isinstance(state, torch.Tensor):
        return local(state)
    if isinstance(state, Mapping):
        return {key: plain(value) for key, value in state.items()}
    return [plain(value) for value in state] if isinstance(state, list) else state


def like(value: Any, parameter: torch.Tensor) -> Any:
    """A shard as what `parameter` is, if it has its shape: sharded in the same way."""
    if not is_sharded(parameter) or not isinstance(value, torch.Tensor) or value.shape != local(parameter).shape:
        return value
    shard = value.to(local(parameter).device)
    return type(parameter.data).from_local(
        shard, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )


def box_of(name: str, tensor: torch.Tensor, rank: int) -> Box:
    """Errors: Refused naming the parameter, for a placement that is neither Shard nor Replicate, and for shards that do not lie as
    torch.chunk would cut them."""
    if not is_sharded(tensor):
        return Box((0,) * tensor.dim(), tuple(tensor.shape), rank == 0)
    start, length, writes = [0] * tensor.dim(), list(tensor.shape), True
    where = tensor.device_mesh.get_coordinate()
    for dimension, (placement, at) in enumerate(zip(tensor.placements, where)):
        if type(placement).__name__ not in _EXACT:
            raise Refused(f"parameter '{name}' is placed as {tensor.placements}; atoll.torch knows Shard and Replicate")
        if type(placement).__name__ == "Replicate":
            writes = writes and at == 0
            continue
        cut = placement.dim % tensor.dim()
        each = -(-length[cut] // tensor.device_mesh.size(dimension))
        first = min(at * each, length[cut])
        start[cut], length[cut] = start[cut] + first, min(each, length[cut] - first)
    if tuple(local(tensor).shape) != tuple(length) and local(tensor).numel() + int(numpy.prod(length)) > 0:
        raise Refused(f"parameter '{name}' has shards of {tuple(local(tensor).shape)} where {tuple(length)} was due; atoll.torch knows even cuts")
    return Box(tuple(start), tuple(length), writes)


def _machine() -> str:
    """This machine, for people and for equality; $ATOLL_MACHINE says otherwise."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return os.environ.get("ATOLL_MACHINE") or f"{socket.gethostname()} {file.read().strip()}"


def _map(path: str) -> torch.Tensor:
    with open(path, "r+b") as file:
        return torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.float32)


class ShardedArena:
    """The arena as all ranks of one trainer see it. Every rank calls every method, in the same order."""

    def __init__(self, path: str, elements: int, boxes: Sequence[Box], entries: Mapping[int, Sequence[Entry]], rank: int, ranks: int, talk: Any):
        """path, elements: of the agent's file; entries: by fragment; boxes: of this rank, by parameter."""
        self._entries, self._rank, self._talk = entries, rank, talk
        said: list[Any] = [None] * ranks
        distributed.all_gather_object(said, (_machine(), list(boxes)), group=talk)
        machines: dict[str, list[int]] = {}
        for number, (machine, _) in enumerate(said):
            machines.setdefault(machine, []).append(number)
        here = machines[said[rank][0]]
        self._leads = here[0] == rank
        self._far = {others[0]: others for machine, others in machines.items() if machine != said[0][0]}  # by the rank that leads
        self._boxes = [given for _, given in said]
        self._mirror: Optional[str] = None
        if said[0][0] != said[rank][0]:
            path = self._make_mirror(elements) if self._leads else ""
        paths: list[Any] = [None] * ranks
        distributed.all_gather_object(paths, path, group=talk)
        self.whole = _map(paths[here[0]])  # the arena, or this machine's mirror of it
        distributed.barrier(group=talk)
        if self._mirror:
            os.unlink(self._mirror)  # every rank of this machine has mapped it

    def _make_mirror(self, elements: int) -> str:
        with tempfile.NamedTemporaryFile(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, prefix="atoll-mirror-", delete=False) as file:
            file.truncate(4 * elements)
            self._mirror = file.name
        return self._mirror

    def values(self, entry: Entry, shape: Sequence[int]) -> torch.Tensor:
        """A whole parameter's place there."""
        return self.whole[entry.offset : entry.offset + entry.count].view(tuple(shape))

    def written(self, fragment: int, shapes: Sequence[Sequence[int]]) -> None:
        """All ranks have copied their boxes of the fragment: what others than the agent's machine have goes to rank 0's."""
        distributed.barrier(group=self._talk)
        for leader, ranks in self._far.items():
            views = list(self._views(fragment, shapes, ranks, writes=True))
            if self._rank == leader:
                distributed.send(torch.cat([view.reshape(-1) for view in views]) if views else torch.zeros(0), 0, group=self._talk)
            elif self._rank == 0:
                self._unpack(leader, views)

    def arrived(self, fragment: int, shapes: Sequence[Sequence[int]]) -> None:
        """The agent has written the fragment: every machine has its boxes of it after this."""
        for leader, ranks in self._far.items():
            views = list(self._views(fragment, shapes, ranks, writes=False))
            if self._rank == 0:
                distributed.send(torch.cat([view.reshape(-1) for view in views]) if views else torch.zeros(0), leader, group=self._talk)
            elif self._rank == leader:
                self._unpack(0, views)
        distributed.barrier(group=self._talk)

    def _unpack(self, source: int, views: Sequence[torch.Tensor]) -> None:
        packed = torch.empty(sum(view.numel() for view in views))
        distributed.recv(packed, source, group=self._talk)
        at = 0
        for view in views:
            view.copy_(packed[at : at + view.numel()].view(view.shape))
            at += view.numel()

    def _views(self, fragment: int, shapes: Sequence[Sequence[int]], ranks: Iterable[int], writes: bool) -> Iterable[torch.Tensor]:
        """The boxes of these ranks, each once, in an order that all ranks know."""
        for entry in self._entries[fragment]:
            found = {}
            for rank in ranks:
                box = self._boxes[rank][entry.parameter]
                if (box.writes or not writes) and box.elements() > 0:
                    found[box.start, box.length] = box
            for box in found.values():
                yield box.of(self.values(entry, shapes[entry.parameter]))
