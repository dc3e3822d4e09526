"""JAX loops on an island: arrays do not change in place, so parameters go into `exchange` and come out of it.

    import atoll.jax as atoll
    island = atoll.join()
    params, opt_state = island.start(params, opt_state, evaluate=validate)
    while island.running:
        params, opt_state, loss = train_step(params, opt_state, data.at(island.position))
        params = island.exchange(params, loss, samples=len(batch), state=opt_state)
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import jax

from ._exchange import ExchangeIsland
from ._island import LinkError, Misused, Refused
from ._join import connect

__all__ = ["ExchangeIsland", "LinkError", "Misused", "Refused", "join"]


# Flax's names for what is no parameter, by name, for it does not have to be installed.
_STATISTICS = "batch_stats"  # the collection of linen's variables


def _kind_of(variable: Any) -> list[str]:
    """The types that a variable of nnx is of, its own first; of anything else none."""
    found = getattr(variable, "type", None) if type(variable).__name__ == "VariableState" else type(variable)
    kinds = [kind.__name__ for kind in getattr(found, "__mro__", ()) if kind.__module__.split(".")[0] == "flax"]
    return kinds if "Variable" in kinds else []


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _name(path: Any) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)


def _variables(tree: Any) -> list[tuple[str, Any]]:
    """The leaves by their names, variables of nnx whole."""
    return [(_name(path), found) for path, found in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: bool(_kind_of(part)))[0]]


def _flatten(tree: Any) -> tuple[list[str], list[Any]]:
    names: list[str] = []
    for name, variable in _variables(tree):
        inner = [_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(variable)[0]]
        names += [name] if len(inner) == 1 else [f"{name}.{each}" for each in inner]
    return names, jax.tree_util.tree_leaves(tree)


def _kinds(tree: Any, leaves: int, buffers: Optional[int]) -> list[Optional[int]]:
    """Keys of random numbers are no numbers: shared, all islands would draw the same. nnx has variables that are no parameters."""
    kinds: list[Optional[int]] = []
    for name, variable in _variables(tree):
        of = _kind_of(variable)
        statistic = "BatchStat" in of or name.split(".")[0] == _STATISTICS
        for leaf in jax.tree_util.tree_leaves(variable):
            kinds.append(buffers if statistic else None if _is_key(leaf) or (of and "Param" not in of) else 0)
    return kinds


def _rebuild(tree: Any, arrays: list[Any]) -> Any:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    given = [array if array is leaf or not hasattr(leaf, "dtype") or _is_key(leaf) else jax.numpy.asarray(array, dtype=leaf.dtype) for leaf, array in zip(leaves, arrays)]
    return jax.tree_util.tree_unflatten(structure, given)


def join(
    settings: Optional[Mapping[str, Any]] = None,
    *,
    name: Optional[str] = None,
    path: Optional[str] = None,
    steps: Optional[int] = None,
    every: int = 100,
    folder: Optional[str] = None,
) -> ExchangeIsland:
    """Joins the agent that started this program; alone where there is none, and then for `steps` steps (None: without an end), as Alone says
    of `every` and `folder`."""
    return ExchangeIsland(connect(name, path, 1, jax.__version__, steps=steps, every=every, folder=folder), settings or {}, _flatten, _rebuild, _kinds)
