"""Weights from safetensors files: `atoll export`'s, a wrapper's own, another library's. Which tensor is which is found by its name, without those that
wrappers have put before or into it, on either side.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any, Iterable, Iterator, NamedTuple, Optional

import torch

from ._island import Refused, digest_of
from ._names import plain_name
from ._shards import is_sharded

_INDEX = "model.safetensors.index.json"
_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
# What wrappers call the module that they wrap. The first three may be a name of the user's own, too: they are left out at the beginning alone.
_AT_THE_BEGINNING = ("module.", "model.module.", "base_model.model.")
_ANYWHERE = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
# PEFT's, inside of a layer: of what was there before, and of what is trained in its place or beside it.
_ADAPTED, _ADAPTERS = {"base_layer", "original_module"}, {"modules_to_save", "default"}
_SHOWN = 5


class Loaded(NamedTuple):
    """What island.load() has found: names of the model's for the first two, of the file's for the third."""

    matched: list[str]
    missing: list[str]
    left_over: list[str]

    def __str__(self) -> str:
        said = f"{len(self.matched)} tensors loaded"
        for names, what in ((self.missing, "missing in the file"), (self.left_over, "left over in the file")):
            if names:
                said += f"; {len(names)} {what}: " + ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        return said


def _files_of(path: str) -> list[str]:
    """Of a folder as save_pretrained() writes it, or of a file. Errors: Refused."""
    if not os.path.isdir(path):
        return [path]
    index = os.path.join(path, _INDEX)
    if os.path.exists(index):
        with open(index) as file:
            names = set(json.load(file)["weight_map"].values())
        return [os.path.join(path, os.path.basename(name)) for name in sorted(names)]
    found = [os.path.join(path, name) for name in ("model.safetensors", "adapter_model.safetensors") if os.path.exists(os.path.join(path, name))]
    if not found:
        raise Refused(f"{path} has no model.safetensors, no {_INDEX} and no adapter_model.safetensors")
    return found[:1]


def tensors_in(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor of a safetensors file, read as it is asked for. Errors: Refused for what is no such file."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= size - 8:
                raise ValueError(f"its header would have {length} bytes")
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                begin, end = entry["data_offsets"]
                kind = getattr(torch, _TYPES[entry["dtype"]])
                if not 0 <= begin <= end <= size - 8 - length:
                    raise ValueError(f"tensor '{name}' lies outside of the file")
                file.seek(8 + length + begin)
                content = bytearray(file.read(end - begin))
                values = torch.frombuffer(content, dtype=kind) if content else torch.empty(0, dtype=kind)
                yield name, values.view(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as failure:
        raise Refused(f"{path} is no safetensors file: {failure}") from None
    except OSError as failure:
        raise Refused(f"{path}: {failure.strerror or failure}") from None


def _bare_names(name: str) -> Iterator[str]:
    """The name, and what it may be without a wrapper's."""
    yield name
    name = ".".join(part for part in name.split(".") if part not in _ANYWHERE)
    yield name
    for start in _AT_THE_BEGINNING:
        if name.startswith(start):
            yield from _bare_names(name[len(start) :])


def _without(name: str, parts: set[str]) -> str:
    return ".".join(part for part in name.split(".") if part not in parts)


class _Places:
    """The model's tensors by each name that a file may have for them; a name that two of them could have is nobody's."""

    def __init__(self, model: torch.nn.Module):
        self.tensors = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if isinstance(tensor, torch.Tensor)}
        plain = {name: plain_name(model, name) for name in self.tensors}
        self._own = {**self._by({name: plain[name] for name in plain}), **{name: name for name in plain}}
        self._adapted = self._by({name: _without(plain[name], _ADAPTED) for name in plain if _ADAPTED & set(plain[name].split("."))})
        self._adapters = self._by({name: _without(plain[name], _ADAPTERS) for name in plain if _ADAPTERS & set(plain[name].split("."))})

    @staticmethod
    def _by(names: dict[str, str]) -> dict[str, str]:
        times = Counter(names.values())
        return {other: name for name, other in names.items() if times[other] == 1}

    def of(self, name: str) -> list[str]:
        """A base's weight is that of the module that is trained in its place, too; a file of adapters has those alone."""
        names = list(_bare_names(name))
        tables = [[self._own], [self._adapters] if name.startswith("base_model.model.") else [self._adapted, self._adapters]]
        for table in tables:
            found = [next((one[each] for each in names if each in one), None) for one in table]
            if any(found):
                return [each for each in found if each]
        return []

    def missing(self, matched: set[str]) -> list[str]:
        """Neither loaded nor the same memory as what was (tied). Counts, such as BatchNorm's num_batches_tracked, are in no export."""
        filled = {self._memory(self.tensors[name]) for name in matched}
        return [name for name, tensor in self.tensors.items() if name not in matched and self._memory(tensor) not in filled and tensor.is_floating_point()]

    @staticmethod
    def _memory(tensor: Any) -> Any:
        return (id(tensor),) if tensor.numel() == 0 else (tensor.data_ptr(), tuple(tensor.shape))


class _Fitted:
    """A file's tensors, and the model's that they are for; nothing is changed yet."""

    def __init__(self, model: torch.nn.Module, path: str, digests: bool = False):
        self._places, left_over = _Places(model), []
        self._matched: list[tuple[str, torch.Tensor]] = []
        self._digests: dict[str, str] = {}
        found: dict[str, str] = {}
        for file in _files_of(path):
            for name, values in tensors_in(file):
                if digests:
                    self._digests[name] = _digest_of(values)
                of = self._places.of(name)
                left_over += [] if of else [name]
                for own in of:
                    if own in found:
                        raise Refused(f"{path}: '{found[own]}' and '{name}' would both be the model's '{own}'")
                    tensor = self._places.tensors[own]
                    if is_sharded(tensor):
                        raise Refused(f"'{own}' is sharded already: island.load(model, path) comes before fully_shard(model)")
                    if tensor.shape != values.shape:
                        raise Refused(f"{path}: '{name}' has shape {list(values.shape)}, and the model's '{own}' {list(tensor.shape)}")
                    found[own] = name
                    self._matched.append((own, values))
        self.loaded = Loaded([own for own, _ in self._matched], self._places.missing(set(found)), left_over)

    def put(self) -> None:
        with torch.no_grad():
            for own, values in self._matched:
                self._places.tensors[own].copy_(values)

    def digest(self) -> str:
        """SHA-256 of all tensors with their names; the same however they are cut into files."""
        return digest_of(f"{name} {each}\n".encode() for name, each in sorted(self._digests.items()))

    def frozen(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self._places.tensors[name].requires_grad]

    def freeze(self) -> None:
        """But for what PEFT trains in a base's place."""
        for own, _ in self._matched:
            if "modules_to_save" not in own.split("."):
                self._places.tensors[own].requires_grad_(False)


def _digest_of(values: torch.Tensor) -> str:
    about = f"{values.dtype} {list(values.shape)} ".encode()
    return digest_of(iter([about, values.contiguous().view(-1).view(torch.uint8).numpy().data]))


def load(model: torch.nn.Module, path: str, strict: bool) -> Loaded:
    """See TorchIsland.load()."""
    fitted = _Fitted(model, path)
    loaded = fitted.loaded
    if strict and (loaded.missing or loaded.left_over):
        raise Refused(f"{path} does not fit the model, and nothing is loaded: {loaded}; strict=False takes what fits".replace("tensors loaded", "tensors would fit"))
    fitted.put()
    return loaded


def load_base(model: torch.nn.Module, path: str, wanted: Optional[str]) -> tuple[Loaded, str]:
    """See TorchIsland.base(); the digest."""
    fitted = _Fitted(model, path, digests=True)
    loaded, digest = fitted.loaded, fitted.digest()
    if wanted is not None and wanted.lower() != digest:
        raise Refused(f"{path} has the digest {digest}, and {wanted} is wanted: it is another base, or has changed; take the file that the other islands have")
    frozen = fitted.frozen(loaded.missing)
    if not loaded.matched or loaded.left_over or frozen:
        lacks = f"; it lacks '{frozen[0]}', which is frozen" if frozen else ""
        raise Refused(f"{path} is no base of this model, and nothing is loaded: {loaded}{lacks}".replace("tensors loaded", "tensors would fit"))
    fitted.put()
    fitted.freeze()
    return loaded, digest
