"""Bring your own training program to an Atoll island.

    import atoll.torch as atoll      # a PyTorch loop, also under torchrun
    import atoll.jax as atoll        # a JAX loop
    import atoll                     # NumPy arrays

docs/own-trainer.md of Atoll begins with the loop and a table of the ways that people write loops.
"""

import sys as _sys

if _sys.version_info < (3, 9):
    raise ImportError("atoll needs Python 3.9 or newer, and %s is %d.%d: take an environment of a newer one" % ((_sys.executable,) + _sys.version_info[:2]))

from ._alone import Alone
from ._island import Dataset, Island, Misused, Refused, Stopped
from ._library import LinkError
from ._numpy import NumpyIsland, join

__all__ = ["Alone", "Dataset", "Island", "LinkError", "Misused", "NumpyIsland", "Refused", "Stopped", "join"]
__version__ = "0.1.0"
