"""A stand-in for a GPU, for machines without one: tensors lie in the processor's memory, and what is done with those that it has taken is
queued on streams and runs later, in any order that a GPU could run it in. Memory that is let go is overwritten as soon as it could be.
Wherever the processor needs a value or waits for an event, everything that this takes is run, and that it waited is written down.

    LATE_GPU="late 3" loops.py torch      nothing runs before the processor waits for it; 3 is the seed of the order
    LATE_GPU="some 3" …                   a few of the operations in reach run whenever something is queued or asked for
    LATE_GPU="copies 3" …                 the steps run at once, copies only when they are waited for: for what no mode can be laid over
"""

import contextlib
import functools
import json
import random
import weakref
from collections import deque

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def alias(value):
    """The same memory as another tensor, with no version that autograd looks at."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty(0, dtype=value.dtype).set_(storage_of(value), value.storage_offset(), value.size(), value.stride())


class Stream:
    def __init__(self, gpu):
        self.gpu, self.queue = gpu, deque()  # of what returns whether it could run
        gpu.streams.append(self)

    def wait_stream(self, other):
        event = Event(self.gpu)
        event.record(other)
        self.wait_event(event)

    def wait_event(self, event):
        self.gpu.queue(self, lambda: event.done)

    def synchronize(self):
        event = Event(self.gpu)
        event.record(self)
        event.synchronize()


class Event:
    def __init__(self, gpu):
        self.gpu, self.done = gpu, True

    def record(self, stream):
        self.done = False
        self.gpu.queue(stream, lambda: setattr(self, "done", True) or True)

    def query(self):
        self.gpu.pass_time()
        return self.done

    def synchronize(self):
        self.gpu.wait_for(self)


class Gpu(TorchDispatchMode):
    def __init__(self, how, seed):
        super().__init__()
        self.how, self.random = how, random.Random(seed)
        self.streams, self.where = [], lambda: None
        self.waited, self.fetched = [], []  # where the processor waited, and where copies into the GPU were begun
        self.steps = self.current = Stream(self)
        self.own, self.others, self.kept, self.recorded = set(), [], [], {}
        self.running = self.entered = False
        self.cudart = lambda: self
        self.cudaHostUnregister = lambda pointer: 0
        self.current_stream = lambda device: self.current
        self.Stream = lambda device: Stream(self)
        self.Event = lambda blocking: Event(self)

    # ---- memory

    def take(self, tensors):
        """These lie on the GPU."""
        for tensor in tensors:
            if not any(first <= tensor.data_ptr() < last for first, last in self.others):
                self.own.add(storage_of(tensor).data_ptr())
                self.kept.append(storage_of(tensor))  # so that no other tensor gets its address

    def holds(self, tensor):
        return isinstance(tensor, torch.Tensor) and (storage_of(tensor).data_ptr() in self.own or self.how == "copies")

    def cudaHostRegister(self, pointer, count, flags):
        self.others.append((pointer, pointer + count))
        return 0

    def pinned(self, shape):
        made = torch.zeros(tuple(shape))
        self.others.append((made.data_ptr(), made.data_ptr() + max(1, 4 * made.numel())))
        self.kept.append(storage_of(made))
        return made

    def record_stream(self, tensor, stream):
        self.recorded.setdefault(storage_of(tensor).data_ptr(), []).append(stream)

    def freed(self, memory, stream):
        """The allocator may give it to whatever is queued on that stream next."""
        for other in self.recorded.pop(storage_of(memory).data_ptr(), []):
            stream.wait_stream(other)
        self.queue(stream, lambda: memory.fill_(float("nan") if memory.is_floating_point() else 85) is memory)

    # ---- what runs when

    def queue(self, stream, item):
        stream.queue.append(item)
        while self.how == "copies" and stream is self.steps and stream.queue:
            self.run_any([stream]) or self.run_any(self.streams)
        self.pass_time()

    def pass_time(self):
        if self.how == "some" and not self.running:
            for _ in range(self.random.choice((0, 0, 1, 10))):
                self.run_any([self.random.choice(self.streams)])

    def run_any(self, streams):
        """The first operation in the queue of one of these streams, if one of them can run."""
        before, self.running = self.running, True
        try:
            with torch.no_grad():
                for stream in self.random.sample(streams, len(streams)):
                    if stream.queue and stream.queue[0]():
                        stream.queue.popleft()
                        return True
            return False
        finally:
            self.running = before

    def wait_for(self, event):
        if not event.done:
            self.waited.append(self.where())
        while not event.done:
            assert self.run_any(self.streams), "the streams wait for one another"

    def host_needs(self, tensor):
        """The processor looks at values: it waits for what has been queued on the current stream."""
        if not self.running and self.how != "copies" and self.holds(tensor):
            self.current.synchronize()

    def save(self, method, *given):
        self.current.synchronize()
        method(*given)

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            with contextlib.nullcontext() if self.entered else self:
                yield
        finally:
            self.current = before

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        if self.running or (self.current is self.steps and not any(self.holds(value) for value in given)):
            return self.allocated(func, func(*args, **kwargs))
        if not given:
            made = self.allocated(func, func(*args, **kwargs))
            self.take([made])
            return made
        late = tree_map(alias, (args, kwargs))
        if func._schema.is_mutable:
            self.take([args[0]])
            self.queue(self.current, lambda: func(*late[0], **late[1]) is not None)
            return args[0]
        result = func(*args, **kwargs)  # of its shapes; its values come later
        made = [value for value in tree_flatten(result)[0] if isinstance(value, torch.Tensor)]
        if not made:
            self.host_needs(given[0])
            return func(*args, **kwargs)
        if not {storage_of(value).data_ptr() for value in made} & {storage_of(value).data_ptr() for value in given}:
            self.take(made)
            places = [alias(value) for value in made]
            self.queue(self.current, lambda: self.compute(func, late, places))
        return result

    def compute(self, func, late, places):
        found = [value for value in tree_flatten(func(*late[0], **late[1]))[0] if isinstance(value, torch.Tensor)]
        for place, value in zip(places, found):
            place.copy_(value)
        return True

    def allocated(self, func, made):
        if func is torch.ops.aten.empty.memory_format and not self.running:
            weakref.finalize(made, self.freed, alias(made), self.current).atexit = False
        return made

    # ---- in place of torch.cuda

    def stand_in(self):
        """For the rest of this process, or until what is returned is closed."""
        import atoll._device
        import atoll.torch

        patches, own = contextlib.ExitStack(), {name: getattr(torch.Tensor, name) for name in ("tolist", "numpy", "cpu")}

        def patch(place, name, value):
            patches.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)

        for name, method in own.items():
            patch(torch.Tensor, name, lambda tensor, method=method: (self.host_needs(tensor), method(tensor))[1])
        patch(torch.Tensor, "record_stream", lambda tensor, stream: self.record_stream(tensor, stream))
        patch(torch, "save", functools.partial(self.save, torch.save))
        patch(atoll._device, "pinned", self.pinned)
        for module in (atoll._device, atoll.torch):
            patch(module, "on_gpu", self.holds)

        class Copies(atoll._device.DeviceCopies):
            def fetch(copies, values, device):
                self.fetched.append(self.where())
                return super().fetch(values, device)

        patch(atoll.torch, "DeviceCopies", lambda arena: Copies(arena, self))
        if self.how != "copies":
            self.entered = True
            patches.enter_context(self)
        return patches


def begin(words, island, *tensors):
    """The island's program runs with this GPU, and says at its end at which steps it waited for it and fetched results."""
    import atexit

    how, seed = words.split()
    gpu = Gpu(how, int(seed))
    gpu.where = lambda: island.step
    gpu.take(tensors)
    gpu.stand_in()
    atexit.register(lambda: print("GPU " + json.dumps({"waited": gpu.waited, "fetched": gpu.fetched}), flush=True))
