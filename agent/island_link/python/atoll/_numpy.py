"""An island whose parameters are NumPy arrays that the loop changes in place."""

from __future__ import annotations

import os
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping, MutableMapping, Optional

import numpy

from ._held import Held
from ._island import Island, Refused
from ._join import connect
from ._saver import write_file


# What only the islands of PyTorch programs have.
OF_TORCH = ("train", "loader", "batches", "load", "base", "save", "average")


class NumpyIsland(Island):
    if not TYPE_CHECKING:  # a type checker finds a wrong name only where this is not declared

        def __getattr__(self, name):
            hint = "; an island of atoll.join() is for NumPy: a PyTorch program has it of atoll.torch.join()" if name in OF_TORCH else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def start(
        self,
        parameters: Mapping[str, numpy.ndarray],
        state: Optional[MutableMapping[str, Any]] = None,
        evaluate: Optional[Callable[[], Any]] = None,
        gradients: Optional[Mapping[str, numpy.ndarray]] = None,
        samples: int = 0,
        blocks: Any = None,
        description: Optional[str] = None,
    ) -> None:
        """Declares the parameters, by name, arrays of float64, float32 or float16 of any shape, and goes on from a checkpoint if there is one. The loop changes
        them in place, or puts others of the same shape into the dict that it has given. Errors: Refused by name where an array cannot be shared, or
        the loop has it no more.

        state      a dict of picklable values that is saved and restored in place (optimiser state, a random generator)
        evaluate   gives the loss on held-out data
        gradients  by the same names, where the run's strategy exchanges gradients
        samples    in this island's part of the data; 0: unknown
        """
        self._held = [Held(parameters, "parameter")]
        self._parameters = self._held[0].arrays
        if gradients is not None:
            self._held.append(Held(gradients, "gradient"))
            self._gradient_at = [list(gradients).index(name) for name in parameters]
        self._state = state if state is not None else {}
        self._check_state()
        self._evaluate = evaluate
        self._begin(list(parameters), [array.shape for array in self._parameters], blocks, description, samples)

    def _copy(self, order):
        for held in self._held:
            held.follow()
        super()._copy(order)

    def _gradient(self, index):
        return self._held[1].arrays[self._gradient_at[index]]

    def _write(self, index, out):
        out[:] = self._parameters[index].reshape(-1)

    def _merge(self, index, values, alpha):
        array = self._parameters[index]
        new = values.reshape(array.shape)
        array[...] = new if alpha == 0 else numpy.float32(alpha) * array.astype(numpy.float32) + numpy.float32(1 - alpha) * new

    def _write_gradient(self, index, out):
        out[:] = self._gradient(index).reshape(-1)

    def _read_gradient(self, index, values):
        self._gradient(index)[...] = values.reshape(self._gradient(index).shape)

    def _check_state(self) -> None:
        """Errors: Refused with the name of the first that cannot be saved."""
        for name, value in self._state.items():
            try:
                pickle.dumps(value)
            except Exception as failure:
                raise Refused(f"state[{name!r}] is of type {type(value).__name__}, which cannot be saved: {failure}") from None

    def _to_save(self, beside):
        state = pickle.dumps({"parameters": self._parameters, "state": dict(self._state), "step": self.step}, pickle.HIGHEST_PROTOCOL)
        return partial(write_file, "state.pickle", state)

    def _load(self, directory):
        with open(os.path.join(directory, "state.pickle"), "rb") as file:
            saved = pickle.load(file)  # what this program wrote on this island
        for array, values in zip(self._parameters, saved["parameters"]):
            array[...] = values
        self._state.update(saved["state"])
        self._stood = saved.get("step", self._stood)

    def _counters(self):
        return [f"state[{name!r}]" for name, value in self._state.items() if isinstance(value, (int, numpy.integer)) and not isinstance(value, bool)]


def join(
    settings: Optional[Mapping[str, Any]] = None,
    *,
    name: Optional[str] = None,
    path: Optional[str] = None,
    steps: Optional[int] = None,
    every: int = 100,
    folder: Optional[str] = None,
) -> NumpyIsland:
    """Joins the agent that started this program; alone where there is none, and then for `steps` steps (None: without an end), as Alone says
    of `every` and `folder`. `settings` are defaults."""
    return NumpyIsland(connect(name, path, 1, steps=steps, every=every, folder=folder), settings or {})
