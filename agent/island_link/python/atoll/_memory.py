"""Whether tensors that are shared lie over the same memory: a result is written into each, so the later one would undo the earlier."""

from __future__ import annotations

from typing import Sequence

import torch

from ._island import Refused
from ._shards import is_sharded


def _end_of(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() + (1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))) * tensor.element_size()


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Of two whose spans overlap, of which `one` begins first. Columns of one matrix lie between each other and have nothing in common."""
    offset, rest = divmod(two.data_ptr() - one.data_ptr(), one.element_size())
    if rest or one.element_size() != two.element_size():
        return True
    taken = torch.zeros((max(_end_of(one), _end_of(two)) - one.data_ptr()) // one.element_size(), dtype=torch.bool)
    taken.as_strided(one.shape, one.stride()).fill_(True)
    return bool(taken.as_strided(two.shape, two.stride(), offset).any())


def refuse_common_memory(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
    """Errors: Refused with both names, or the one whose own values are one in memory."""
    here = [number for number, tensor in enumerate(tensors) if not is_sharded(tensor) and tensor.numel() and tensor.device.type != "meta"]
    for number in here:
        if any(stride == 0 and size > 1 for stride, size in zip(tensors[number].stride(), tensors[number].shape)):
            raise Refused(f"parameter '{names[number]}' is expanded: several of its values are one in memory, and no result can be written there; make it a clone()")
    spans = sorted((str(tensors[number].device), tensors[number].data_ptr(), _end_of(tensors[number]), number) for number in here)
    for at, (device, _, end, number) in enumerate(spans):
        for other_device, begin, _, other in map(spans.__getitem__, range(at + 1, len(spans))):
            if other_device != device or begin >= end:
                break
            if _overlap(tensors[number], tensors[other]):
                one, two = sorted((number, other))
                raise Refused(
                    f"parameters '{names[one]}' and '{names[two]}' lie over the same memory, and the islands would share two values of what is one: give both "
                    "modules the same parameter (head.weight = embedding.weight, without .data), or make one a clone()"
                )
