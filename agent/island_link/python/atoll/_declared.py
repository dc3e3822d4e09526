"""What a PyTorch program shares: the parameters and buffers that it declared, compared with its model before each exchange."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

import torch

from . import _library as library
from ._island import Refused, digest_of, refuse_type
from ._memory import refuse_common_memory
from ._names import plainly_named
from ._shards import Box, box_of, is_sharded, local

_FEW = 16  # about as many values of a frozen parameter are looked at again
_BUFFERS = {False: 0, None: 0, True: library.BUFFER_MEAN, "mean": library.BUFFER_MEAN, "one": library.BUFFER_ONE}


def _requires_gradient(name: str, parameter: torch.Tensor) -> bool:
    return parameter.requires_grad


def _refuse_kind(name: str, parameter: torch.Tensor) -> None:
    if hasattr(parameter, "_local_shards") or hasattr(parameter, "_is_flat_param") or type(parameter).__name__ == "FlatParameter":
        raise Refused(f"parameter '{name}' is one of FSDP1 ({type(parameter).__name__}), which has no shape of its own; use FSDP2 (fully_shard)")
    refuse_type(name, str(parameter.dtype))


def _refuse_shapeless(name: str, parameter: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(parameter):
        raise Refused(f"parameter '{name}' has no shape yet, as those of LazyLinear: let the model see a batch before island.train()")


def _some_of(tensor: torch.Tensor) -> bytes:
    """A few values from all over it."""
    values = local(tensor).reshape(-1)
    return _bytes_of(values[:: max(1, values.numel() // _FEW)])


def _bytes_of(parameter: torch.Tensor) -> bytes:
    whole = parameter.detach().full_tensor() if is_sharded(parameter) else parameter.detach()
    return whole.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


class Declared:
    """
    names, shapes, kinds  of what is shared, in the order of the model; a kind is 0 of what is trained, else how a buffer is shared
    tensors  the model's own, by the same index; one that was replaced by another of its shape takes its place
    boxes    what this rank has of each; empty where no parameter is sharded over ranks
    frozen   a digest of the parameters that are not shared; None where all are
    Errors: Refused by name for what cannot be shared.
    """

    def __init__(self, model: torch.nn.Module, synchronise: Optional[Callable[[str, torch.nn.Parameter], bool]], buffers: Union[bool, str], rank: int):
        if buffers not in _BUFFERS:
            raise Refused(f"buffers is {buffers!r}; it can be 'mean', 'one' or False")
        self._model, self._rank = model, rank
        self._wanted, self._why = (synchronise, "is to be synchronised") if synchronise else (_requires_gradient, "requires a gradient")
        named = plainly_named(model, model.named_parameters())
        for name, parameter in named:
            _refuse_shapeless(name, parameter)
        shared = [(name, parameter) for name, parameter in named if self._wanted(name, parameter)]
        self.kinds = [0] * len(shared)
        if _BUFFERS[buffers]:
            found = [(name, buffer) for name, buffer in plainly_named(model, model.named_buffers()) if buffer.dtype.is_floating_point]
            shared += found
            self.kinds += [_BUFFERS[buffers]] * len(found)
        if not shared:
            raise Refused("no parameter is to be synchronised: none requires a gradient")
        for name, tensor in shared:
            _refuse_kind(name, tensor)
        self.names = [name for name, _ in shared]
        self.tensors = [tensor for _, tensor in shared]
        refuse_common_memory(self.names, self.tensors)
        self.shapes = [tuple(tensor.shape) for tensor in self.tensors]
        sharded = any(is_sharded(parameter) for parameter in model.parameters())
        self.boxes: list[Box] = [box_of(name, tensor, rank) for name, tensor in shared] if sharded else []
        self.added: dict[str, torch.Tensor] = {}
        ids = {id(tensor) for tensor in self.tensors}
        rest = [(name, parameter) for name, parameter in named if id(parameter) not in ids]
        self.frozen = digest_of(name.encode() + _bytes_of(parameter) for name, parameter in rest) if rest else None
        self._rest = [] if synchronise else [name for name, _ in rest]  # a program that chooses may leave some to each island
        self._frozen_values: dict[str, bytes] = {}
        self._checks = 0

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """What is trained of what is shared."""
        return {name: tensor for name, tensor, kind in zip(self.names, self.tensors, self.kinds) if kind == 0}

    def copies(self, trained: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of the model's parameters, or of its buffers, each with its values now."""
        of_model = [one for name, one, kind in zip(self.names, self.tensors, self.kinds) if (kind == 0) == trained and name not in self.added]
        return [(one, one.detach().clone()) for one in of_model]

    def add(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """More that is shared and is no part of the model, of which the islands' mean is taken."""
        self.added.update(tensors)
        self.names += tensors
        self.tensors += tensors.values()
        self.shapes += [tuple(tensor.shape) for tensor in tensors.values()]
        self.kinds += [library.BUFFER_MEAN] * len(tensors)

    def check(self) -> None:
        """What is exchanged is what the model has now. Errors: Refused by name."""
        present = dict(plainly_named(self._model, self._model.named_parameters()))
        known = set(self.names)
        for name, parameter in present.items():
            if name not in known and self._wanted(name, parameter):
                raise Refused(
                    f"parameter '{name}' {self._why} now and did not when island.start() declared what the islands share: it would be trained on this "
                    "island alone; declare it from the beginning, with synchronise="
                )
        tensors = {**dict(plainly_named(self._model, self._model.named_buffers())), **present, **self.added}
        for index, name in enumerate(self.names):
            self._check_one(index, tensors.get(name))
        self._checks += 1
        if self._checks & (self._checks - 1) == 0:  # what is trained unheard of changes soon and again and again; later looks are rare
            self._check_frozen(present)

    def begun(self) -> None:
        """What is not shared is as it is to stay: a checkpoint is loaded if there is one."""
        present = dict(plainly_named(self._model, self._model.named_parameters()))
        self._frozen_values = {name: _some_of(present[name]) for name in self._rest}

    def _check_frozen(self, present: Mapping[str, torch.Tensor]) -> None:
        for name, values in self._frozen_values.items():
            now = _some_of(present[name]) if name in present else values
            if now != values and len(now) == len(values):  # of another length where it was only converted
                raise Refused(
                    f"parameter '{name}' is not shared, for it required no gradient when island.train() declared what is, and its values have changed since: "
                    "each island would end with another; choose with synchronise=, say lambda name, parameter: True, what the islands share"
                )

    def _check_one(self, index: int, tensor: Optional[torch.Tensor]) -> None:
        name, shape = self.names[index], self.shapes[index]
        if tensor is None:
            raise Refused(f"parameter '{name}' was declared by island.start(), and the model has it no more")
        if tuple(tensor.shape) != shape:
            raise Refused(f"parameter '{name}' was declared with shape {shape}, and has {tuple(tensor.shape)} now")
        _refuse_kind(name, tensor)
        if tensor is not self.tensors[index]:
            self.tensors[index] = tensor
            if self.boxes:
                self.boxes[index] = box_of(name, tensor, self._rank)


def refuse_strangers(model: torch.nn.Module, optimizers: Iterable[Any]) -> None:
    """An optimiser of parameters that the model lacks trains what nobody else hears of: of a model that was copied or moved, say."""
    own = {id(parameter) for parameter in model.parameters()}
    for number, optimizer in enumerate(optimizers):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in own:
                    raise Refused(
                        f"optimizer {number} trains a parameter of shape {tuple(parameter.shape)} that the model lacks: give its module in start([model, …]), "
                        "or make the optimiser of the model's parameters as they are now"
                    )
