"""Bring your own training program to an Atoll island.

    import atoll.torch as atoll      # a PyTorch loop, also under torchrun
    import atoll.jax as atoll        # a JAX loop
    import atoll                     # NumPy arrays

docs/own-trainer.md of Atoll begins with the loop and a table of the ways that people write loops.
"""

from ._alone import Alone
from ._island import Dataset, Island, Misused, Refused, Stopped
from ._library import LinkError
from ._numpy import NumpyIsland, join

__all__ = ["Alone", "Dataset", "Island", "LinkError", "Misused", "NumpyIsland", "Refused", "Stopped", "join"]
__version__ = "0.1.0"
