"""A state as it is at one moment, for a thread to write while the steps go on."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any, Callable, Optional

import numpy
import torch

from ._device import on_gpu

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, numpy.generic)


class Captured:
    """A copy of a tree of dicts, lists and tuples. Tensors on a GPU are copied there, in the order of the steps, and come to the processor when they
    are asked for; where the GPU has no memory for that they come at once. Objects that are none of these are what pickle makes of them."""

    def __init__(self, tree: Any):
        self._seen: dict[Any, Any] = {}  # tensors that two places share are copied once
        self._there: dict[torch.device, Any] = {}  # events, after which the copies on a GPU are whole
        self._tree: Any = self._of(tree)
        self._seen.clear()
        for device in self._there:
            self._there[device] = torch.cuda.Event()
            self._there[device].record(torch.cuda.current_stream(device))

    def take(self) -> Any:
        """The copy, with all tensors on the processor; once, from any thread."""
        tree, self._tree = self._tree, None
        streams = {}
        for device, event in self._there.items():
            streams[device] = torch.cuda.Stream(device)
            streams[device].wait_event(event)
        return self._fetched(tree, streams, {}) if streams else tree

    def _of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        made = self._seen.get(id(value))
        if made is not None:
            return made[0]
        if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
            made = value.copy()
        elif type(value) in (dict, OrderedDict):
            made = copy.copy(value)  # with what OrderedDicts of modules have beside their entries
            self._seen[id(value)] = (made, value)
            made.update((key, self._of(held)) for key, held in value.items())
        elif type(value) in (list, tuple):
            made = type(value)(self._of(held) for held in value)
        else:
            made = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        self._seen[id(value)] = (made, value)  # which is held, so that no other object gets its number
        return made

    def _of_tensor(self, value: torch.Tensor) -> Any:
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided or value.is_quantized:
            return copy.deepcopy(value)
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride(), type(value), value.requires_grad)
        if key not in self._seen or value.numel() == 0:
            self._seen[key] = (self._like(value, self._copy(value.detach())), value)
        return self._seen[key][0]

    @staticmethod
    def _like(value: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return torch.nn.Parameter(made, value.requires_grad) if type(value) is torch.nn.Parameter else made.requires_grad_(value.requires_grad)

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        if not on_gpu(value):
            return value.clone()
        try:
            made = value.clone()
            self._there[value.device] = None
            return made
        except RuntimeError:  # no memory there: PyTorch's OutOfMemoryError is one
            return value.cpu()

    def _fetched(self, value: Any, streams: dict, seen: dict) -> Any:
        """The same with tensors of GPUs brought here. Containers are ours: they are changed in place."""
        if on_gpu(value):
            if id(value) not in seen:
                with torch.cuda.stream(streams[value.device]):
                    seen[id(value)] = (self._like(value, value.detach().cpu()), value)
            return seen[id(value)][0]
        if type(value) in (dict, OrderedDict):
            for key in value:
                value[key] = self._fetched(value[key], streams, seen)
        elif type(value) is list:
            value[:] = [self._fetched(held, streams, seen) for held in value]
        elif type(value) is tuple:
            return tuple(self._fetched(held, streams, seen) for held in value)
        return value


def whole_or_captured(tree: Any, beside: bool) -> Callable[[], Optional[Any]]:
    """What gives the tree to write: as it is now, if it is written beside the steps."""
    return Captured(tree).take if beside else lambda: tree
