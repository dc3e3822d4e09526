"""The turned-round loop, for frameworks whose arrays do not change in place: parameters go in, parameters come out."""

from __future__ import annotations

import os
import pickle
from functools import partial
from typing import Any, Callable, Mapping, Optional, Union

import numpy

from . import _library as library
from ._island import Island, Misused, Refused, refuse_type, samples_of
from ._saver import write_file


BUFFERS = {False: None, True: library.BUFFER_MEAN, "mean": library.BUFFER_MEAN, "one": library.BUFFER_ONE}


def _all_trained(tree: Any, leaves: int, buffers: Optional[int]) -> list[Optional[int]]:
    return [0] * leaves


class ExchangeIsland(Island):
    """Trees of arrays (dicts, lists and tuples): `flatten` gives (names, leaves) and `rebuild` the same tree of other leaves. `kinds` says of each leaf
    what it is: 0 if it is trained, else how a buffer is shared; None of what is this island's own: it is saved and restored, and nobody else has it."""

    running: bool = False  # whether another step is wanted

    def __init__(self, trainer: Any, defaults: Mapping[str, Any], flatten: Callable[..., Any], rebuild: Callable[..., Any], kinds: Callable[..., Any] = _all_trained):
        super().__init__(trainer, defaults)
        self._flatten, self._rebuild, self._kinds = flatten, rebuild, kinds

    def start(
        self,
        parameters: Any,
        state: Any = None,
        evaluate: Optional[Callable[[Any], Any]] = None,
        samples: int = 0,
        blocks: Any = None,
        description: Optional[str] = None,
        buffers: Union[bool, str] = False,
    ) -> tuple[Any, Any]:
        """Declares the leaves of `parameters`; gives (parameters, state) to go on with: those given, or those of a checkpoint.

        parameters  of JAX also flax's variables with their batch_stats, and nnx.state(model): keys and counts of its random numbers stay this island's
        state       any picklable tree (the optimiser's): saved and restored
        evaluate    (parameters) → the loss on held-out data
        buffers     "mean" or "one": batch statistics (nnx.BatchStat, batch_stats) are shared, too: after a round all islands have the mean of what
                    each had (True says the same), or what the first island had. False: each island keeps its own
        Errors: Refused for leaves that cannot be shared, by their names.
        """
        if buffers not in BUFFERS:
            raise Refused(f"buffers is {buffers!r}; it can be 'mean', 'one' or False")
        names, leaves = self._flatten(parameters)
        kinds = self._kinds(parameters, len(leaves), BUFFERS[buffers])
        self._shared = [place for place, kind in enumerate(kinds) if kind is not None]
        self._tree, self._arrays, self._kept = parameters, self._shared_of(leaves), state
        names = [names[place] for place in self._shared]
        for name, array in zip(names, self._arrays):
            refuse_type(name, array.dtype.name)
        self._evaluate = (lambda: evaluate(self._present())) if evaluate else None
        self._begin(names, [array.shape for array in self._arrays], blocks, description, samples, [kinds[place] for place in self._shared])
        self.running = self.wants_step()
        return self._present(), self._kept

    def _shared_of(self, leaves: list[Any]) -> list[numpy.ndarray]:
        return [numpy.array(leaves[place]) for place in self._shared]

    def _own_leaves(self) -> dict[int, Any]:
        return {place: leaf for place, leaf in enumerate(self._flatten(self._tree)[1]) if place not in set(self._shared)}

    def exchange(self, parameters: Any, loss: Any = None, samples: Optional[int] = None, state: Any = None, tokens: Optional[int] = None, **metrics: Any) -> Any:
        """A step led to these parameters (and this state of the optimiser): gives those to go on with. `island.running` says whether to."""
        samples = samples_of(samples)
        if state is None and self._kept is not None:
            raise Misused("island.start() was given a state, and island.exchange() is not: say state=, or a trainer that is killed goes on without it")
        self._tree, self._kept, self._changed = parameters, state, False
        self._lazy = self._flatten(parameters)[1]
        self.done(loss, samples, tokens, **metrics)
        self.running = self.wants_step()
        if not self.running:
            self.leave()
        return self._present() if self._changed else parameters

    def _carry_out(self, order):
        if getattr(self, "_lazy", None) is not None:  # the device's arrays are looked at only when something is due
            self._arrays, self._lazy = self._shared_of(self._lazy), None
        super()._carry_out(order)

    def _present(self) -> Any:
        leaves = list(self._flatten(self._tree)[1])
        for place, array in zip(self._shared, self._arrays):
            leaves[place] = array
        return self._rebuild(self._tree, leaves)

    def _write(self, index, out):
        out[:] = self._arrays[index].reshape(-1)

    def _merge(self, index, values, alpha):
        array = self._arrays[index]
        new = values.reshape(array.shape)
        self._arrays[index] = (new if alpha == 0 else numpy.float32(alpha) * array.astype(numpy.float32) + numpy.float32(1 - alpha) * new).astype(array.dtype)
        self._changed = True

    def reduce_gradients(self, loss: Any, samples: int, tokens: Optional[int] = None) -> None:
        raise Misused("exchange() works with strategies that exchange parameters, not gradients")

    def _to_save(self, beside):
        whole = {"parameters": self._arrays, "state": self._kept, "step": self.step, "own": self._own_leaves()}
        state = pickle.dumps(whole, pickle.HIGHEST_PROTOCOL)
        return partial(write_file, "state.pickle", state)

    def _load(self, directory):
        with open(os.path.join(directory, "state.pickle"), "rb") as file:
            saved = pickle.load(file)  # what this program wrote on this island
        self._arrays, self._kept = saved["parameters"], saved["state"]
        leaves = list(self._flatten(self._tree)[1])
        for place, leaf in saved.get("own", {}).items():
            leaves[place] = leaf
        self._tree = self._rebuild(self._tree, leaves)
        self._stood = saved.get("step", self._stood)

    def _counters(self):
        return [] if self._kept is None else ["state"]


def flatten_plain(tree: Any, prefix: str = "") -> tuple:
    """Names and arrays of nested dicts, lists and tuples."""
    if isinstance(tree, Mapping):
        parts = [flatten_plain(tree[key], f"{prefix}{key}.") for key in sorted(tree)]
    elif isinstance(tree, (list, tuple)):
        parts = [flatten_plain(value, f"{prefix}{number}.") for number, value in enumerate(tree)]
    else:
        return [prefix[:-1] or "parameters"], [tree]
    return [name for names, _ in parts for name in names], [array for _, arrays in parts for array in arrays]


def rebuild_plain(tree: Any, arrays: list) -> Any:
    """The same nesting with other arrays."""
    rest = iter(arrays)

    def build(part: Any) -> Any:
        if isinstance(part, Mapping):
            built = {key: build(part[key]) for key in sorted(part)}
            return {key: built[key] for key in part}
        if isinstance(part, (list, tuple)):
            return type(part)(build(value) for value in part)
        return next(rest)

    return build(tree)
