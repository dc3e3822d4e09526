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
from ._join import connect

__all__ = ["join"]


def _flatten(tree: Any) -> tuple:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path) for path, _ in leaves], [leaf for _, leaf in leaves]


def _rebuild(tree: Any, arrays: list) -> Any:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return jax.tree_util.tree_unflatten(structure, [jax.numpy.asarray(array, dtype=leaf.dtype) for leaf, array in zip(leaves, arrays)])


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
    return ExchangeIsland(connect(name, path, 1, jax.__version__, steps=steps, every=every, folder=folder), settings or {}, _flatten, _rebuild)
