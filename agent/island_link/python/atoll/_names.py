"""Names of a model's parameters and buffers without those of the wrappers around it or inside it: what the plain model calls them.

A wrapper is known by its type. A module of the user's own that is called "module" or "model" keeps its name.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Optional

# Type, where it comes from, and the attribute that is the wrapped module. By name, for none has to be installed.
_WRAPPERS = {
    "DistributedDataParallel": ("torch", "module"),
    "DataParallel": ("torch", "module"),
    "AveragedModel": ("torch", "module"),
    "FullyShardedDataParallel": ("torch", "_fsdp_wrapped_module"),
    "OptimizedModule": ("torch", "_orig_mod"),
    "ActivationWrapper": ("torch", "_checkpoint_wrapped_module"),
    "CheckpointWrapper": ("torch", "_checkpoint_wrapped_module"),
    "OffloadWrapper": ("torch", "_checkpoint_wrapped_module"),
    "PeftModel": ("peft", "base_model"),
    "BaseTuner": ("peft", "model"),
    "DeepSpeedEngine": ("deepspeed", "module"),
    "_FabricModule": ("lightning", "_forward_module"),
}


def _wrapped(module: Any) -> Optional[str]:
    """The attribute of a wrapper that is the wrapped module; None of what is no wrapper."""
    for kind in type(module).__mro__:
        package, attribute = _WRAPPERS.get(kind.__name__, ("", ""))
        if package and kind.__module__.split(".")[0] in (package, f"{package}_fabric"):
            return attribute
    return None


def plain_name(model: Any, name: str) -> str:
    parts, module = [], model
    for part in name.split("."):
        if _wrapped(module) != part:
            parts.append(part)
        module = getattr(module, "_modules", {}).get(part)
    return ".".join(parts)


def plainly_named(model: Any, named: Iterable[tuple]) -> list[tuple]:
    """`named` (name, tensor) by their plain names; where two would be one, both keep theirs."""
    named = [(name, plain_name(model, name), tensor) for name, tensor in named]
    times = Counter(plain for _, plain, _ in named)
    return [(plain if times[plain] == 1 else name, tensor) for name, plain, tensor in named]
