"""Copies between the arena and tensors on GPUs, beside the steps. Needs PyTorch with CUDA.

The arena's pages are pinned. A fragment that goes out is captured on the GPU, in the order of the steps, and copied from there into the arena
on a stream of its own; one that comes in is copied on another, and the steps that need it wait for it on the GPU. The processor waits for
none of them: `begun()` gives what says later that they have ended. Where the pages cannot be pinned the copies are the same, and CUDA makes
the processor wait for each.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch


def on_gpu(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_cuda


def pinned(shape: Sequence[int]) -> torch.Tensor:
    """float32 in the processor's memory, from and into which copies run without the processor."""
    return torch.empty(tuple(shape), dtype=torch.float32, pin_memory=True)


class Copies:
    """Those of one order."""

    def __init__(self, events: Sequence[Any], kept: Sequence[torch.Tensor], after: Sequence[Callable[[], Any]]):
        self._events, self._kept, self._after = events, kept, after

    def ended(self) -> bool:
        """Does not wait."""
        return all(event.query() for event in self._events)

    def wait(self) -> None:
        """Until they have ended. What was captured is let go, and what came through other memory is where it belongs."""
        for event in self._events:
            event.synchronize()
        self._kept = ()
        for place in self._after:
            place()


class DeviceCopies:
    def __init__(self, arena: torch.Tensor, cuda: Any = torch.cuda):
        """arena: float32 [n], as mapped; it must stay mapped until close()."""
        self._cuda, self._arena = cuda, arena
        self._streams: dict[tuple, Any] = {}  # by device and direction
        self._used: dict[Any, None] = {}  # since the last begun(), in their order
        self._kept: list[torch.Tensor] = []
        self._after: list[Callable[[], Any]] = []
        self._pinned = int(cuda.cudart().cudaHostRegister(arena.data_ptr(), 4 * arena.numel(), 0)) == 0
        if not self._pinned:
            self._forget_error()

    @staticmethod
    def _forget_error() -> None:
        """CUDA keeps the error of a call that failed, and PyTorch would raise it at whatever comes next."""
        try:
            torch.zeros(1, device="cuda")
        except RuntimeError:
            pass

    def _stream(self, device: torch.device, direction: str) -> Any:
        """Copies out of a GPU wait for no copies into it, and the other way round."""
        if (device, direction) not in self._streams:
            self._streams[device, direction] = self._cuda.Stream(device)
        stream = self._streams[device, direction]
        self._used[stream] = None
        return stream

    def write(self, tensor: torch.Tensor, out: torch.Tensor) -> None:
        """tensor, as it is after what the current stream has queued, goes into `out`, of its shape, as float32. It may change at once."""
        captured = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        captured.copy_(tensor.detach())  # on the current stream: before whatever comes next there
        place = out if out.is_contiguous() else pinned(out.shape)
        stream = self._stream(tensor.device, "out")
        stream.wait_stream(self._cuda.current_stream(tensor.device))
        with self._cuda.stream(stream):
            place.copy_(captured, non_blocking=True)
        self._kept.append(captured)
        if place is not out:
            self._after.append(lambda: out.copy_(place))

    def fetch(self, values: torch.Tensor, device: torch.device) -> Callable[[], torch.Tensor]:
        """Values of the arena on their way to the device. What is returned gives them as a tensor for the current stream to use, once."""
        place = values if values.is_contiguous() else pinned(values.shape).copy_(values)
        stream, there = self._stream(device, "in"), self._cuda.Event(blocking=True)
        with self._cuda.stream(stream):
            tensor = torch.empty(values.shape, dtype=torch.float32, device=device)
            tensor.copy_(place, non_blocking=True)
        there.record(stream)

        def use() -> torch.Tensor:
            current = self._cuda.current_stream(device)
            current.wait_event(there)
            tensor.record_stream(current)
            return tensor

        return use

    def numbers(self, values: Sequence[Any]) -> Callable[[], list[float]]:
        """Numbers and tensors with one element, as they are after what the current streams have queued. What is returned gives them once
        the copies of the order have ended."""
        found = [None if on_gpu(value) else float(value) for value in values]
        by_device: dict[torch.device, list[int]] = {}
        for index, value in enumerate(values):
            if on_gpu(value):
                by_device.setdefault(value.device, []).append(index)
        parts = []
        for places in by_device.values():
            there = torch.stack([values[index].detach().float().reshape(()) for index in places])
            parts.append((places, pinned(there.shape)))
            self.write(there, parts[-1][1])

        def come() -> list[float]:
            for places, here in parts:
                for index, number in zip(places, here.tolist()):
                    found[index] = number
            return found

        return come

    def begun(self) -> Copies:
        """The copies since this was asked last."""
        events = []
        for stream in self._used:
            events.append(self._cuda.Event(blocking=True))  # whoever waits for it sleeps
            events[-1].record(stream)
        copies = Copies(events, self._kept, self._after)
        self._used, self._kept, self._after = {}, [], []
        return copies

    def close(self) -> None:
        """Waits for all copies. Before the arena is unmapped."""
        for stream in self._streams.values():
            stream.synchronize()
        if self._pinned:
            self._cuda.cudart().cudaHostUnregister(self._arena.data_ptr())
            self._pinned = False
