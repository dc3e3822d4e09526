"""PyTorch loops on an island, also under torchrun with DistributedDataParallel.

    import atoll.torch as atoll
    island = atoll.join()                         # started by an agent, or alone: the same program
    model, opt, sched, data = build(island.settings, island.part, island.parts)
    island.start(model, opt, state={"sched": sched}, evaluate=validate)
    for step in island.steps():
        batch = data.at(island.position)
        loss = model(batch); opt.zero_grad(); loss.backward(); opt.step(); sched.step()
        island.done(loss, samples=len(batch))

PyTorch 1.13 or newer. Under torchrun every rank calls the same functions; rank 0 talks to the agent, and what it decides travels in batches
of steps. Parameters that are sharded over ranks (FSDP, DTensor) are refused by name.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import numpy
import torch
import torch.distributed as distributed

from . import _library as library
from ._island import Alone, Dataset, Island, LinkError, Stopped, connect, die_with_parent, digest_of
from ._library import Order

__all__ = ["Alone", "Dataset", "LinkError", "Stopped", "TorchIsland", "join"]

_BATCH_SECONDS = 0.5  # of steps that ranks do between two words of rank 0


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    """The user's module inside DistributedDataParallel."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def _refuse_shards(name: str, parameter: torch.Tensor) -> None:
    if hasattr(parameter, "placements") or hasattr(parameter, "_local_shards") or type(parameter).__name__ in ("DTensor", "FlatParameter"):
        raise ValueError(f"parameter '{name}' is sharded over ranks ({type(parameter).__name__}); atoll.torch works with whole parameters (DDP)")
    if not parameter.dtype.is_floating_point:
        raise ValueError(f"parameter '{name}' has type {parameter.dtype}; only floating-point parameters are synchronised")


class TorchIsland(Island):
    def __init__(self, trainer: Any, defaults: Mapping[str, Any], rank: int = 0, ranks: int = 1, talk: Any = None):
        super().__init__(trainer, defaults)
        self.rank, self.ranks = rank, ranks
        self._talk = talk  # the group of small messages between ranks
        self._free = 0     # steps that are decided and not begun
        self._owed = [0, 0, 0]  # steps, samples and tokens done and not answered
        self._pace = 0.0   # seconds a step
        self._batch_began = 0.0

    def start(
        self,
        model: torch.nn.Module,
        optimizer: Optional[torch.optim.Optimizer] = None,
        *,
        state: Optional[Mapping[str, Any]] = None,
        evaluate: Optional[Callable[[], Any]] = None,
        synchronise: Optional[Callable[[str, torch.nn.Parameter], bool]] = None,
        buffers: bool = False,
        samples: int = 0,
        blocks: Any = None,
        description: Optional[str] = None,
    ) -> None:
        """Declares the model's parameters and goes on from a checkpoint if there is one.

        optimizer    whose state is saved and restored with the model's
        state        further objects with state_dict() and load_state_dict() that are saved and restored
        evaluate     gives the loss on held-out data; called without gradients
        synchronise  (name, parameter) → whether the islands share it; by default those that require gradients. Of the rest a digest is
                     compared, so that nobody trains on another base
        buffers      whether floating-point buffers (BatchNorm's running mean and variance) are shared as parameters are
        samples      in this island's part of the data; 0: unknown
        blocks       (name) → block, where names do not number the layers
        description  of the model, at most 4096 bytes, the same on all islands; goes into exported files
        """
        self._model, self._optimizer, self._state, self._user_evaluate = _bare(model), optimizer, dict(state or {}), evaluate
        self._evaluate = self._evaluate_all if evaluate else None
        wanted = synchronise or (lambda name, parameter: parameter.requires_grad)
        named = [(name, parameter) for name, parameter in self._model.named_parameters()]
        shared = [(name, parameter) for name, parameter in named if wanted(name, parameter)]
        if buffers:
            shared += [(name, buffer) for name, buffer in self._model.named_buffers() if buffer.dtype.is_floating_point]
        if not shared:
            raise ValueError("no parameter is to be synchronised: none requires a gradient")
        for name, parameter in shared:
            _refuse_shards(name, parameter)
        self._shared = [parameter for _, parameter in shared]
        ids = {id(parameter) for parameter in self._shared}
        frozen = [(name, parameter) for name, parameter in named if id(parameter) not in ids]
        if frozen:
            digest = digest_of(name.encode() + parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for name, parameter in frozen)
            description = f"{description or ''} (the parameters that are not synchronised have the digest {digest[:16]})".strip()
        self._begin([name for name, _ in shared], [tuple(parameter.shape) or (1,) for _, parameter in shared], blocks, description, samples)

    # ---- copies

    def _write(self, index, out):
        torch.from_numpy(out).copy_(self._shared[index].detach().reshape(-1))

    def _merge(self, index, values, alpha):
        with torch.no_grad():
            parameter = self._shared[index]
            new = torch.from_numpy(values).view(parameter.shape)
            if alpha == 0:
                parameter.copy_(new)
            elif parameter.dtype == torch.float32:
                parameter.mul_(alpha).add_(new.to(parameter.device), alpha=1 - alpha)
            else:
                parameter.copy_(parameter.float().mul_(alpha).add_(new.to(parameter.device), alpha=1 - alpha))
            self._spread(parameter)

    def _write_gradient(self, index, out):
        gradient = self._shared[index].grad
        if gradient is None:
            out[:] = 0
        else:
            torch.from_numpy(out).copy_(gradient.detach().reshape(-1))

    def _read_gradient(self, index, values):
        parameter = self._shared[index]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.copy_(torch.from_numpy(values).view(parameter.shape))
        self._spread(parameter.grad)

    def _spread(self, tensor: torch.Tensor) -> None:
        """What rank 0 has taken, the other ranks take."""
        if self.ranks > 1:
            distributed.broadcast(tensor.detach(), 0)

    def _norm(self) -> float:
        norms = [parameter.grad.detach().float().norm() for parameter in self._shared if parameter.grad is not None]
        return float(torch.stack([norm.cpu() for norm in norms]).norm()) if norms else 0.0

    def _numbers(self, values):
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) < len(values) or not tensors:
            return [float(value) for value in values]
        return torch.stack([value.detach().float().reshape(()) for value in tensors]).tolist()  # one wait for the device

    def done(self, loss: Any = None, samples: int = 1, tokens: Optional[int] = None, **metrics: Any) -> None:
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        metrics = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()}
        if self.ranks == 1:
            return super().done(loss, samples, tokens, **metrics)
        if self._in_hand is None:
            raise RuntimeError("island.done() without a step: loop over island.steps()")
        if self._in_hand.kind == library.GRADIENT:
            raise RuntimeError("the run's strategy exchanges gradients: call island.reduce_gradients(loss, samples=…) before opt.step()")
        if loss is not None and self.rank == 0:
            self._losses.append(loss)
        self.metrics = metrics
        self.step += 1
        self.position += samples
        done = (1, samples, samples * self._tokens_per_sample if tokens is None else tokens)
        self._owed = [owed + more for owed, more in zip(self._owed, done)]
        self._in_hand = None

    done.__doc__ = Island.done.__doc__

    def reduce_gradients(self, loss: Any, samples: int, tokens: Optional[int] = None) -> None:
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        if self.ranks == 1:
            return super().reduce_gradients(loss, samples, tokens)
        if self._in_hand is not None and self._in_hand.kind == library.GRADIENT:
            raise RuntimeError("strategies that exchange gradients work with trainers of one rank")

    reduce_gradients.__doc__ = Island.reduce_gradients.__doc__

    # ---- ranks

    def wants_step(self) -> bool:
        if self.ranks == 1:
            return super().wants_step()
        if not self._started:
            raise RuntimeError("island.start(…) comes before the first step")
        if self._free == 0:
            while True:
                order = self._tell(self._decide() if self.rank == 0 else None)
                if order.kind == library.STOP:
                    return False
                if order.kind == library.STEP:
                    self._free = order.free_until - order.step + 1
                    self._batch_began = time.monotonic()
                    break
                self._follow(order)
        self._free -= 1
        self._in_hand = Order(library.STEP)
        return True

    def _decide(self) -> Order:
        """Rank 0: the next thing that all ranks have to do. What it can do alone, it does."""
        try:
            if self._owed[0] > 0:
                self._pace = (time.monotonic() - self._batch_began) / self._owed[0]
                steps, samples, tokens = self._owed
                self._owed = [0, 0, 0]
                self._trainer.answer(steps=steps, samples=samples, tokens=tokens)
            while True:
                order = self._trainer.next(500)
                if order.kind == library.GRADIENT:
                    raise RuntimeError("strategies that exchange gradients work with trainers of one rank")
                if order.kind == library.STEP:
                    batch = max(1, int(_BATCH_SECONDS / self._pace)) if self._pace > 0 else 1
                    return order._replace(free_until=min(order.free_until, order.step + batch - 1))
                if order.kind in (library.STOP, library.STAND_AT, library.EVALUATE, library.SAVE, library.MERGE):
                    return order
                if order.kind != library.NONE:
                    self._carry_out(order)
        except LinkError as failure:
            if not failure.gone:
                raise
            return Order(library.STOP)

    def _tell(self, order: Optional[Order]) -> Order:
        said = [order]
        distributed.broadcast_object_list(said, 0, group=self._talk)
        return said[0]

    def _follow(self, order: Order) -> None:
        if self.rank == 0:
            return self._carry_out(order)
        if order.kind == library.STAND_AT:
            self.step, self.position = order.step, order.position
        elif order.kind == library.EVALUATE and self._evaluate:
            self._evaluate()
        elif order.kind == library.SAVE:
            self._try_to_save(order.directory)
        elif order.kind == library.MERGE:
            for index in self._order_of_fragment[order.fragment]:
                self._spread(self._shared[index])
        self._owed, self._losses = [0, 0, 0], []

    def leave(self) -> None:
        super().leave()
        if self.ranks > 1 and self._talk is not None:
            self._talk = None
            distributed.destroy_process_group()  # its threads must end before the interpreter does

    leave.__doc__ = Island.leave.__doc__

    def _begin(self, names, shapes, blocks, description, samples):
        super()._begin(names, shapes, blocks, description, samples)
        order = {fragment: [entry.parameter for entry in entries] for fragment, entries in self._entries.items()}
        if self.ranks > 1:
            said = [order]
            distributed.broadcast_object_list(said, 0, group=self._talk)
            order = said[0]
            for parameter in self._model.parameters():
                distributed.broadcast(parameter.detach(), 0)
        self._order_of_fragment = order

    def _evaluate_all(self) -> Any:
        with torch.no_grad():
            return self._user_evaluate()

    # ---- saving

    def _random(self) -> dict[str, Any]:
        import random

        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "numpy": numpy.random.get_state(),
            "python": random.getstate(),
        }

    def _set_random(self, states: Mapping[str, Any]) -> None:
        import random

        torch.set_rng_state(states["torch"])
        if states["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(states["cuda"])
        numpy.random.set_state(states["numpy"])
        random.setstate(states["python"])

    def _save(self, directory):
        states: list[Any] = [None] * self.ranks
        if self.ranks > 1:
            distributed.gather_object(self._random(), states if self.rank == 0 else None, 0, group=self._talk)
            if self.rank != 0:
                return
        else:
            states = [self._random()]
        torch.save(
            {
                "model": self._model.state_dict(),
                "optimizer": self._optimizer.state_dict() if self._optimizer else None,
                "state": {name: value.state_dict() for name, value in self._state.items()},
                "random": states,
            },
            os.path.join(directory, "state.pt"),
        )

    def _load(self, directory):
        where = "cpu"
        saved = None
        if self.rank == 0:
            path = os.path.join(directory, "state.pt")
            try:
                saved = torch.load(path, map_location=where, weights_only=False)  # what this program wrote on this island
            except TypeError:
                saved = torch.load(path, map_location=where)
        if self.ranks > 1:
            said = [saved]
            distributed.broadcast_object_list(said, 0, group=self._talk)
            saved = said[0]
        self._model.load_state_dict(saved["model"])
        if self._optimizer:
            self._optimizer.load_state_dict(saved["optimizer"])
        for name, value in self._state.items():
            value.load_state_dict(saved["state"][name])
        self._set_random(saved["random"][min(self.rank, len(saved["random"]) - 1)])


class _Listener:
    """The trainer of a rank that does not talk."""

    def __init__(self, configuration: Mapping[str, Any]):
        self.configuration = configuration

    def declare(self, parameters, description):
        return numpy.zeros(0, numpy.float32), []

    def nothing(self, *given: Any, **named: Any) -> None:
        pass

    prepare = ready = answer = fail = leave = nothing


def join(settings: Optional[Mapping[str, Any]] = None, *, name: Optional[str] = None, path: Optional[str] = None) -> TorchIsland:
    """Joins the agent that started this program, or the one whose socket is at `path`; alone where there is none.

    settings  defaults for those of the run file
    Under torchrun the process group is made if there is none (NCCL with CUDA, else gloo). Errors: LinkError.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        return TorchIsland(connect(name, path, 1, torch.__version__), settings or {})
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = distributed.get_rank()
    talk = distributed.new_group(backend="gloo")
    die_with_parent()
    trainer = connect(name, path, ranks, torch.__version__) if rank == 0 else None  # which talks for all
    said = [dict(trainer.configuration) if trainer else None]
    distributed.broadcast_object_list(said, 0, group=talk)
    return TorchIsland(trainer or _Listener(said[0]), settings or {}, rank, ranks, talk)
