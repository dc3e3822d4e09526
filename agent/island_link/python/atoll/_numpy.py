"""An island whose parameters are NumPy arrays that the loop changes in place."""

from __future__ import annotations

import os
import pickle
from functools import partial
from typing import Any, Callable, Mapping, MutableMapping, Optional

import numpy

from ._island import Island, Refused, refuse_type
from ._join import connect
from ._saver import write_file


class NumpyIsland(Island):
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
        """Declares the parameters, by name, arrays of float64, float32 or float16 of any shape, and goes on from a checkpoint if there is one.

        state      a dict of picklable values that is saved and restored in place (optimiser state, a random generator)
        evaluate   gives the loss on held-out data
        gradients  by the same names, where the run's strategy exchanges gradients
        samples    in this island's part of the data; 0: unknown
        """
        self._parameters = [parameters[name] for name in parameters]
        for name, array in parameters.items():
            if not isinstance(array, numpy.ndarray):
                raise Refused(
                    f"parameter '{name}' is of type {type(array).__name__}, which cannot be changed in place: give an array, numpy.array({array!r}) of a number"
                    if numpy.isscalar(array)
                    else f"parameter '{name}' is of type {type(array).__name__}, not a NumPy array"
                )
            refuse_type(name, array.dtype.name)
        self._gradient_arrays = [gradients[name] for name in parameters] if gradients is not None else []
        self._state = state if state is not None else {}
        self._evaluate = evaluate
        self._begin(list(parameters), [array.shape for array in self._parameters], blocks, description, samples)

    def _write(self, index, out):
        out[:] = self._parameters[index].reshape(-1)

    def _merge(self, index, values, alpha):
        array = self._parameters[index]
        new = values.reshape(array.shape)
        array[...] = new if alpha == 0 else numpy.float32(alpha) * array.astype(numpy.float32) + numpy.float32(1 - alpha) * new

    def _write_gradient(self, index, out):
        out[:] = self._gradient_arrays[index].reshape(-1)

    def _read_gradient(self, index, values):
        self._gradient_arrays[index][...] = values.reshape(self._gradient_arrays[index].shape)

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
