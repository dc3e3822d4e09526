"""A data loader that follows the run: this island's samples from its position on, in the run's order, until the run ends."""

from __future__ import annotations

from collections import deque
from numbers import Integral
from typing import Any, Iterator, Optional

import torch

from ._island import Dataset, Misused, Refused
from ._train import training_of

_OURS = "sampler", "batch_sampler", "drop_last", "generator"


class _Batches:
    """The indices of one batch after another from a position on, for torch's DataLoader; `given` has those that were handed to it and not yet come."""

    def __init__(self, island: Any, data: Dataset, size: int):
        self._island, self._data, self._size = island, data, size
        self.given: deque[tuple[int, Any, list[int]]] = deque()
        self.begin = 0

    def at(self, position: int) -> list[int]:
        return self._data.indices(position, self._size)[self._island.rank :: self._island.ranks]

    def __iter__(self) -> Iterator[list[int]]:
        position = self.begin
        while True:
            self.given.append((position, self._island.share, self.at(position)))
            position += self._size
            yield self.given[-1][2]


class Loader:
    """This island's batches of a data set with a length and an index. What comes is a function of `island.position` alone: it goes on with the next
    sample after a kill, whatever the number of worker processes, and in each pass every sample comes once, on one island or another. A batch may
    hold a pass's last samples and the next one's first.

    batch_size  of each rank, as torch's DataLoader under torchrun
    shuffle     anew for each pass, by the run's seed; False: in the data's order
    options     of torch.utils.data.DataLoader: num_workers, collate_fn, pin_memory, …
    Errors: Refused for data without a length and an index, and for samplers of the program's own; Misused where it is iterated outside of
    island.train().
    """

    def __init__(self, island: Any, dataset: Any, batch_size: int = 1, *, shuffle: bool = True, **options: Any):
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise Refused(
                f"a data set of type {type(dataset).__name__} has no length and no index, so no sample of it can be found again: give one that has, or cut "
                "the stream for each island and use island.batches(stream, samples=…)"
            )
        for name in _OURS:
            if name in options:
                raise Refused(f"island.loader(…, {name}=…): which samples come, and in which order, is the run's")
        if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
            raise Refused(f"batch_size is {batch_size!r}; it is a number of samples, at least one: by it the island's position is counted")
        self._island, self._size, self._by_pass = island, batch_size * island.ranks, False
        self.dataset: Any = dataset
        self.batch_size: int = batch_size
        self._batches = _Batches(island, Dataset(dataset, island, shuffle), self._size)
        # A generator of its own: a worker's seed is not drawn from the program's, so that one that goes on draws the same.
        seeds = torch.Generator().manual_seed(island.seed)
        self._loader = torch.utils.data.DataLoader(dataset, batch_sampler=self._batches, generator=seeds, **options)
        self._iterator: Optional[Iterator[Any]] = None
        self._of_batch: Optional[int] = None  # the number of the first sample of the batch in hand

    def _sample(self) -> int:
        training = self._island._training
        return int(self._island.share.sample(training.position if training is not None else self._island.position))

    @property
    def epoch(self) -> int:
        """The pass over all data that the batch in hand begins in, from 0."""
        return (self._sample() if self._of_batch is None else self._of_batch) // len(self.dataset)

    @property
    def passes(self) -> float:
        """Over all data, of the whole run, as far as the next sample."""
        return self._sample() / len(self.dataset)

    def __len__(self) -> int:
        """Batches of this island in one pass, about: the islands share it."""
        return -(-len(self.dataset) // (self._size * max(1, self._island.parts)))

    def epochs(self) -> Iterator[int]:
        """The numbers of the passes until the run ends. Inside, an iteration of the loader ends with the pass."""
        training, self._by_pass = training_of(self._island), True
        try:
            while training.goes_on():
                yield self._sample() // len(self.dataset)
        finally:
            self._by_pass = False

    def __iter__(self) -> Iterator[Any]:
        training = training_of(self._island)
        begun = None
        while training.goes_on():
            now = self._sample() // len(self.dataset) if self._by_pass else 0
            begun = now if begun is None else begun
            if now != begun:
                return
            self._of_batch = self._sample()
            batch = self._next(training.position)
            training.took(self._size)
            yield batch
        self._iterator = self._loader._iterator = None  # the run has ended, and the workers with it

    def _next(self, position: int) -> Any:
        """The batch at that position: the one that was prepared, unless the run has jumped or the data were dealt anew."""
        given = self._batches.given
        if self._iterator is None or not given or not self._is_of(position, *given[0]):
            self._iterator = None  # whose workers end
            given.clear()
            self._batches.begin = position
            self._iterator = iter(self._loader)
        batch = next(self._iterator)
        given.popleft()
        return batch

    def _is_of(self, position: int, there: int, share: Any, indices: list[int]) -> bool:
        return position == there and (share is self._island.share or indices == self._batches.at(position))


def one_loader(island: Any, *given: Any, **named: Any) -> Loader:
    """Errors: Misused for a second one: the position is that of one data set."""
    if island._loader is not None:
        raise Misused("island.loader() is called once: its samples are the island's position. Make one data set of several, torch.utils.data.StackDataset")
    return Loader(island, *given, **named)
