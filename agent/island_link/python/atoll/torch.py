"""PyTorch loops on an island, also under torchrun with DistributedDataParallel or FSDP2.

    import atoll.torch as atoll
    island = atoll.join()                         # started by an agent, or alone: the same program
    loader = island.loader(dataset, batch_size=32, num_workers=2)
    with island.train(model, opt, scheduler=sched, evaluate=validate):
        for batch in loader:                      # ends with the run
            loss = model(batch)
            loss.backward(); opt.step(); sched.step(); opt.zero_grad()
            island.log(loss=loss)

The layer below, for loops without an optimiser of PyTorch's: start(), steps() and done().

PyTorch 1.13 or newer; 2.4 or newer for FSDP2 (fully_shard). Under torchrun every rank calls the same functions; rank 0 talks to the
agent, and what it decides travels in batches of steps. Copies between GPUs and the arena run beside the steps. Of parameters that are
sharded over ranks (DTensor) each rank copies its own shards; shards that are not cut evenly along a dimension, and FSDP1's flat
parameters, are refused by name.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import sys
import warnings
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Union

import numpy
import torch
import torch.distributed as distributed

from . import _library as library
from . import _schedule, _state
from ._alone import SAVING, Alone, begin_save, end_save
from ._average import PREFIX, Average
from ._captured import whole_or_captured
from ._checkpoint import STATE, first_reason, is_dcp, need_dcp, read_dcp, see, write_dcp, write_state
from ._copies import Copies
from ._declared import Declared, refuse_strangers
from ._device import DeviceCopies, on_gpu
from ._island import Dataset, Island, LinkError, Misused, Refused, Stopped, blocks_of
from ._loader import Loader, one_loader
from ._join import connect, die_with_parent
from ._library import Order
from ._ranks import Listener, RankedIsland, meet_ranks
from ._shards import ShardedArena, is_sharded, like, local, plain
from ._train import Training, inner_optimizer, training_of
from ._weights import Loaded, load, load_base

__all__ = ["Alone", "Dataset", "LinkError", "Loaded", "Loader", "Misused", "Refused", "Stopped", "TorchIsland", "Training", "join"]

_BESIDE_STEPS = library.REPORT, library.WRITE, library.WRITE_GRADIENT, library.FETCH, library.MERGE, library.READ_GRADIENT


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    """The user's module inside DistributedDataParallel."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def _mix(parameter: torch.Tensor, new: torch.Tensor, alpha: float) -> None:
    """parameter <- alpha * parameter + (1 - alpha) * new, in float32; alpha 0 is an exact copy."""
    with torch.no_grad():
        if alpha == 0:
            parameter.copy_(new)
        elif parameter.dtype == torch.float32:
            parameter.mul_(alpha).add_(new.to(parameter.device), alpha=1 - alpha)
        else:
            parameter.copy_(parameter.float().mul_(alpha).add_(new.to(parameter.device), alpha=1 - alpha))


class TorchIsland(RankedIsland):
    def __init__(self, trainer: Any, defaults: Mapping[str, Any], rank: int = 0, ranks: int = 1, talk: Any = None):
        super().__init__(trainer, defaults, rank, ranks, talk)
        self._device: Optional[DeviceCopies] = None  # where parameters are on GPUs
        self._fetched: dict[int, Callable[[], torch.Tensor]] = {}  # results that wait there for their merge, by parameter
        self._checked = False  # the model was compared with what is declared, and no step was done since
        self._training: Optional[Training] = None
        self._loader: Optional[Loader] = None
        self._average: Optional[Average] = None
        self._evaluating = False
        self._copies = Copies()
        self._save_to: Optional[tuple[str, bool]] = None  # once the step in hand is done

    def train(self, model: Any, optimizer: Any, **how: Any) -> Training:
        """Around the loop that trains: `with island.train(model, opt, scheduler=sched, evaluate=validate): for batch in loader: …`. It declares the
        model and goes on from a checkpoint as start() does, whose keywords it takes. The optimisers' hooks count the steps, the loader counts the
        samples, and between two batches the run is followed. With a strategy that exchanges gradients their mean is taken before the step.

        Errors: as start(); Misused where the loop is left before the run has ended.
        """
        return Training(self, lambda: self.start(model, optimizer, **how))

    def loader(self, dataset: Any, batch_size: int = 1, *, shuffle: bool = True, **options: Any) -> Loader:
        """Batches of this island's part of a data set, at its position, for the loop in train(); see Loader. Once in a program."""
        self._loader = one_loader(self, dataset, batch_size, shuffle=shuffle, **options)
        return self._loader

    def batches(self, source: Iterable[Any], samples: Union[int, Callable[[Any], int]]) -> Iterator[Any]:
        """Batches of the program's own, which it has cut for this island (`island.part` of `island.parts`), until the run ends, in train().

        samples  in a batch of all ranks together: a number, or a function of the batch
        """
        return training_of(self).batches(source, samples)

    def log(self, loss: Any = None, **metrics: Any) -> None:
        """In the loop of train(): the loss of a batch, and at most 32 numbers of your own. A tensor is not looked at before it has to be.

        loss  the batch's mean loss, before it is divided for an accumulation: a step's is the mean of those logged in it
        """
        if loss is not None:
            if self._evaluating:
                raise Misused("island.log(loss=…) is for the loss of a batch in training: evaluate() returns the held-out one")
            (self._training or training_of(self)).logged.append(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        if metrics:
            self._note({name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()})

    def load(self, model: torch.nn.Module, path: Union[str, os.PathLike[str]], *, strict: bool = True) -> Loaded:
        """Puts the weights of a safetensors file into the model, before train() or start(), and says what matched, is missing, and is left over.
        Wrappers' names are left out on both sides: DistributedDataParallel, torch.compile, PEFT, FSDP, Fabric.

        path    a file (an export, for one), or a folder as save_pretrained() writes it
        strict  refused, and nothing is loaded, where tensors are missing or left over; counts of integers may be missing
        Errors: Refused for another shape, by its name, and for what is no safetensors file; Misused once the run has begun.
        """
        self._refuse_late("island.load(model, path)")
        loaded = load(model, os.fspath(path), strict)
        if self.rank == 0:
            print(f"atoll: {path}: {loaded}", file=sys.stderr, flush=True)
        return loaded

    def base(self, model: torch.nn.Module, path: Union[str, os.PathLike[str]], *, digest: Optional[str] = None) -> str:
        """The frozen base of a fine-tuning, before train() or start(): puts a file's weights into the model as load() does, and freezes them. What the
        file lacks stays trainable: adapters, a new head. Before or after PEFT's get_peft_model().

        path    a safetensors file, or a folder as save_pretrained() writes it, of this island's own disk
        digest  what is returned: SHA-256 of all tensors and their names, the same however they are cut into files. None: whatever it is; that
                all islands have the same is compared when the run begins
        Errors: Refused with both digests; for tensors that the model has no place for, or of another shape, and for frozen parameters that
        the file lacks: nothing is loaded then. Misused once the run has begun.
        """
        self._refuse_late("island.base(model, path)")
        loaded, found = load_base(model, os.fspath(path), digest)
        if self.rank == 0:
            print(f"atoll: {path}: {loaded}; frozen, with the digest {found}", file=sys.stderr, flush=True)
        return found

    def _refuse_late(self, call: str) -> None:
        if self._started:
            raise Misused(f"{call} comes before island.train() and island.start(): the model is the run's from then on")

    def save(self, folder: Union[str, os.PathLike[str]], *, dcp: Optional[bool] = None) -> None:
        """A checkpoint of this island, apart from the run's own, once the step in hand is done. FOLDER/STEP has the model, optimisers, schedulers,
        what state= holds, and generators. The same program goes on from it without an agent by atoll.join(folder=FOLDER), with the run's
        settings and this island's part of the data. In every rank. The folder keeps the newest, and a save that is cut off or fails leaves
        the one before; the disk needs room for two.

        dcp  True: FOLDER/STEP is a checkpoint of torch.distributed.checkpoint, whose `model` and `optimizer` any program reads, and from
             which any number of ranks goes on; all ranks have to see the folder. False: FOLDER/STEP/state.pt is written by torch.save (with
             FSDP2 a file for each rank, for the same number of ranks). None: True with FSDP2, else False
        Errors: Misused inside of a step of island.steps(), and before the run has begun; Refused for dcp=True before PyTorch 2.4. OSError with
        what the disk says; in the loop of train() it is said on stderr in place of it, and the training goes on.
        """
        if self._training is None and (self._in_hand is not None or not self._started):
            raise Misused("island.save(folder) comes after island.done(), or in the loop of island.train()")
        dcp = bool(self._boxes) and self.ranks > 1 if dcp is None else dcp
        if dcp:
            need_dcp()
        self._save_to = os.fspath(folder), dcp
        if self._training is None:
            self._save_now()

    def _save_now(self) -> None:
        (folder, dcp), self._save_to = self._save_to or ("", False), None
        self.prepare(f"saving {folder}")
        of_run = {name: self.configuration[name] for name in ("seed", "training", "trainer") if name in self.configuration}
        saving = os.path.join(folder, SAVING)
        parts: tuple[Callable[[], Any], ...] = (
            lambda: begin_save(folder) if self.rank == 0 else None,
            lambda: see(saving) if dcp else None,
            lambda: self._save_dcp(saving) if dcp else self._save(saving),
            lambda: end_save(folder, self.step, self.position, {**of_run, "data": dict(self._dealt)}) if self.rank == 0 else None,
        )
        for part in parts:
            why = None
            try:
                part()
            except OSError as failure:
                why = str(failure)
            why = first_reason(why, self.rank, self.ranks, self._talk)
            if why is not None:
                break
        else:
            return
        if self.rank == 0:
            shutil.rmtree(saving, ignore_errors=True)
        if self._training is None:
            raise OSError(f"nothing is saved in {folder}, and what was there stays: {why}")
        if self.rank == 0:
            print(f"atoll: nothing is saved in {folder}, and what was there stays: {why}", file=sys.stderr, flush=True)

    def start(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        *,
        scheduler: Any = None,
        state: Any = None,
        evaluate: Optional[Callable[[], Any]] = None,
        synchronise: Optional[Callable[[str, torch.nn.Parameter], bool]] = None,
        buffers: Union[bool, str] = False,
        average: Optional[float] = None,
        samples: int = 0,
        blocks: Any = None,
        description: Optional[str] = None,
    ) -> None:
        """Declares the model's parameters and goes on from a checkpoint if there is one.

        model        a module; or a list or dict of modules, whose parameters are named by its indices or keys
        optimizer    whose state is saved and restored with the model's; or a list or dict of optimisers
        scheduler    of the learning rate, or a list: before each step it stands at the run's step. The loop need not step it, and may. One that
                     goes by the loss (ReduceLROnPlateau) is saved and restored alone
        state        what else is saved and restored: dicts and lists of objects with state_dict() and load_state_dict(), of random generators,
                     tensors, arrays and plain values. Plain values are restored in the dict or list that holds them, which is island.state, and may
                     grow there. A scheduler of PyTorch's is moved to the run's step where it was stepped once in each step
        evaluate     gives the loss on held-out data, or (loss, {name: number}); called without gradients
        synchronise  (name, parameter) → whether the islands share it; by default those that require gradients. Of the rest a digest is
                     compared, so that nobody trains on another base
        buffers      "mean" or "one": floating-point buffers (BatchNorm's running mean and variance) are shared, too. No outer step moves
                     them: after a round all islands have the mean of what each had (True says the same), or what the first island had
        average      the decay of a moving average of the parameters, 0.999 say: island.average, the mean over the islands after each round, which
                     is exported under "average.NAME". It doubles what a round exchanges, and is refused with FSDP2
        samples      in this island's part of the data; 0: unknown
        blocks       (name) → block, where names do not number the layers
        description  of the model, at most 4096 bytes, the same on all islands; goes into exported files
        Errors: ValueError for what cannot be synchronised, saved or restored, by its name.
        """
        if isinstance(model, Mapping):
            model = torch.nn.ModuleDict(dict(model))
        elif isinstance(model, (list, tuple)):
            model = torch.nn.ModuleList(model)
        self._model, self._optimizer, self._user_evaluate = _bare(model), optimizer, evaluate
        self.state: Any = {} if state is None else state
        _state.check(self.state)
        for path, one, _ in _state.leaves(self._optimizer, "optimizer"):
            if one is not None and not hasattr(one, "param_groups"):
                raise Refused(f"{path} is of type {type(one).__name__}; optimisers of torch.optim, and lists and dicts of them, are taken")
        self._schedules = _schedule.Schedules(scheduler, self.state)
        self._evaluate = self._evaluate_all if evaluate else None
        self._declared = Declared(self._model, synchronise, buffers, self.rank)
        if average is not None:
            if self._declared.boxes:
                raise Refused("average= is for models that each rank has whole; of sharded parameters no average is kept")
            numbers = [blocks(name) for name in self._declared.names] if callable(blocks) else list(blocks or blocks_of(self._declared.names))
            of_trained = [number for number, kind in zip(numbers, self._declared.kinds) if kind == 0]
            self._average, blocks = Average(average, self._declared.parameters), numbers + of_trained
            self._declared.add({PREFIX + name: tensor for name, tensor in self._average.tensors.items()})
        self._shared, self._shapes, self._boxes = self._declared.tensors, self._declared.shapes, self._declared.boxes
        refuse_strangers(self._model, self._optimizers())
        if self._declared.frozen:
            description = f"{description or ''} (the parameters that are not synchronised have the digest {self._declared.frozen[:16]})".strip()
        self._begin(self._declared.names, self._shapes, blocks, description, samples, self._declared.kinds)
        self._declared.begun()

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to do, from 0 on, of a loop without an optimiser of PyTorch's; each must end with done(). Ends when the run is over,
        the island leaves, or the agent is gone. Deprecated where there is one: train() takes its steps as they are.
        """
        if self._started and self._optimizers():
            warnings.warn(
                "island.steps() with an optimiser goes with the next version: write `with island.train(model, optimizer): for batch in "
                "island.loader(dataset, batch_size=…): …` in place of start(), steps() and done(), with island.log(loss=loss), and island.batches(…) for "
                "batches of your own",
                DeprecationWarning,
                stacklevel=2,
            )
        return super().steps()

    @property
    def average(self) -> dict[str, torch.Tensor]:
        """The moving average of the parameters by their names, in float32, for torch.func.functional_call or load_state_dict(…, strict=False); empty
        without average=. After a completed run it is the exported one."""
        return dict(self._average.tensors) if self._average else {}

    def _optimizers(self) -> list[Any]:
        return [one for _, one, _ in _state.leaves(self._optimizer, "optimizer") if one is not None]

    def _reshard(self) -> None:
        for module in self._model.modules():
            if hasattr(module, "unshard") and hasattr(module, "reshard"):
                module.reshard()

    def _check_model(self) -> None:
        """Once between two steps, which are where a program changes its model. Errors: Refused by name."""
        if not self._checked:
            self._checked = True
            if self._boxes:
                self._reshard()  # gathered parameters are other tensors than those that are declared
            self._declared.check()
            refuse_strangers(self._model, self._optimizers())
            if self._average is not None and self._started:
                self._average.follow(self._declared.parameters, self.step)

    # ---- what counts steps

    def _jumped(self, before):
        self._tell_of(_schedule.counters(self.state) + self._schedules.jumped(before, self.step), before)

    def _stand(self):
        if self._stood != self.step:
            super()._stand()
        self._before_step()

    def _before_step(self) -> None:
        self._checked = False
        self._schedules.stand_at(self.step)
        if self._copies.looks and self.step > 0:
            self._copies.look(self._declared.parameters, map(inner_optimizer, self._optimizers()))
            if not any(map(on_gpu, self._declared.tensors[:1])):
                self._copies.judge()
        if self._average is not None:
            self._average.follow(self._declared.parameters, self.step)

    # ---- copies

    def _into_arena(self, tensor: torch.Tensor, out: torch.Tensor) -> None:
        """out: the tensor's place there, in its shape."""
        if self._device is not None and on_gpu(tensor):
            self._device.write(tensor, out)
        else:
            out.copy_(tensor)

    def _fetch_for(self, index: int, values: torch.Tensor, like: torch.Tensor) -> None:
        if self._device is not None and on_gpu(like):
            self._fetched[index] = self._device.fetch(values, like.device)

    def _of_arena(self, index: int, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """What the parameter takes, where it lies."""
        if index not in self._fetched:
            self._fetch_for(index, values, like)
        return self._fetched.pop(index)() if index in self._fetched else values

    def _forget_fetched(self, order: Order) -> None:
        """What was fetched is not what is to be merged: the run went on from elsewhere."""
        for entry in self._entries[order.fragment] if order.kind == library.MERGE and not order.fetched else []:
            self._fetched.pop(entry.parameter, None)

    def _copy(self, order):
        if order.kind in (library.WRITE, library.MERGE):
            self._check_model()
        self._forget_fetched(order)
        super()._copy(order)
        if order.kind == library.MERGE and self._average is not None:
            self._average.merged()

    def _carry_out(self, order):
        if self._device is None or order.kind not in _BESIDE_STEPS:
            return super()._carry_out(order)
        answer: Callable[[], Mapping[str, Any]] = dict
        if order.kind == library.REPORT:
            answer = self._begin_report(order)
        else:
            self._copy(order)
        self._begin_answer(self._device.begun(), answer)

    def _begin_report(self, order: Order) -> Callable[[], Mapping[str, Any]]:
        """What a report is answered with once the copies of its numbers have ended."""
        given, metrics = self._take_reported()
        losses = self._device.numbers(given)
        means = {name: self._device.numbers(values) for name, values in metrics.items()}
        norms, step = self._device.numbers(self._norms()) if order.wants_norm else None, self.step

        def answer() -> Mapping[str, Any]:
            said = {"losses": losses(), "metrics": {name: float(numpy.mean(values())) for name, values in means.items()}}
            self._hear(order.kind, step, said)
            return said if norms is None else {**said, "norm": self._norm_of(torch.tensor(norms()))}

        return answer

    def _write(self, index, out):
        parameter = local(self._shared[index])
        self._into_arena(parameter, torch.from_numpy(out).view(parameter.shape))

    def _merge(self, index, values, alpha):
        parameter = local(self._shared[index])
        _mix(parameter, self._of_arena(index, torch.from_numpy(values).view(parameter.shape), parameter), alpha)
        self._spread(parameter)

    def _fetch(self, index, values):
        parameter = local(self._shared[index])
        self._fetch_for(index, torch.from_numpy(values).view(parameter.shape), parameter)

    def _write_gradient(self, index, out):
        gradient = self._shared[index].grad
        if gradient is None:
            out[:] = 0
        else:
            self._into_arena(gradient.detach(), torch.from_numpy(out).view(gradient.shape))

    def _read_gradient(self, index, values):
        parameter = self._shared[index]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.copy_(self._of_arena(index, torch.from_numpy(values).view(parameter.shape), parameter))
        self._spread(parameter.grad)

    def _norms(self) -> list[torch.Tensor]:
        """Of the last gradient: of each parameter, or of this rank's part of it."""
        return [
            local(parameter.grad).float().norm()
            for index, parameter in enumerate(self._shared)
            if parameter.grad is not None and (not self._boxes or self._boxes[index].writes)
        ]

    def _norm(self) -> float:
        norms = self._norms()
        return self._norm_of(torch.stack([norm.cpu() for norm in norms]) if norms else torch.zeros(0))

    def _norm_of(self, norms: torch.Tensor) -> float:
        """norms: float32 [parts], on the processor."""
        square = norms.square().sum()
        if self._sharded:
            distributed.all_reduce(square, group=self._talk)
        return float(square.sqrt())

    def _numbers(self, values):
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) < len(values) or not tensors:
            numbers = [float(value) for value in values]
        else:
            numbers = torch.stack([value.detach().float().reshape(()) for value in tensors]).tolist()  # one wait for the device
        self._copies.judge()  # which waits no longer
        return numbers

    def done(self, loss: Any = None, samples: Optional[int] = None, tokens: Optional[int] = None, **metrics: Any) -> None:
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        metrics = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()}
        super().done(loss, samples, tokens, **metrics)

    done.__doc__ = Island.done.__doc__

    def reduce_gradients(self, loss: Any, samples: int, tokens: Optional[int] = None) -> None:
        super().reduce_gradients(loss.detach() if isinstance(loss, torch.Tensor) else loss, samples, tokens)

    reduce_gradients.__doc__ = Island.reduce_gradients.__doc__

    def _copy_shards(self, arena: ShardedArena, order: Order) -> None:
        if order.kind in (library.WRITE, library.MERGE):
            self._check_model()
        self._forget_fetched(order)
        if order.kind == library.FETCH or (order.kind == library.MERGE and not order.fetched):
            arena.arrived(order.fragment, self._shapes)
        if order.kind == library.MERGE:
            self._reshard()  # what an evaluation has gathered is old now
        for entry in self._entries[order.fragment]:
            box, own = self._boxes[entry.parameter], local(self._shared[entry.parameter])
            values = box.of(arena.values(entry, self._shapes[entry.parameter]))
            if own.numel() == 0:
                continue  # of a parameter with fewer rows than there are ranks
            if order.kind == library.FETCH:
                self._fetch_for(entry.parameter, values, own)
            elif order.kind == library.MERGE:
                _mix(own, self._of_arena(entry.parameter, values, own), order.alpha)
            elif box.writes:
                self._into_arena(own, values)

    def leave(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None
        super().leave()

    leave.__doc__ = Island.leave.__doc__

    def _begin(self, names, shapes, blocks, description, samples, buffers=None):
        super()._begin(names, shapes, blocks, description, samples, buffers)
        if self.ranks > 1:
            self._join_ranks()
        if any(on_gpu(local(parameter)) for parameter in self._shared):
            arena = self._sharded.whole if self._sharded else torch.from_numpy(self._arena)
            self._device = DeviceCopies(arena) if arena.numel() > 0 else None

    def _join_ranks(self) -> None:
        """What rank 0 has of the agent, and the parameters that no rank shares out."""
        path = self._trainer.arena_path() if self.rank == 0 else ""
        beside = any(on_gpu(local(parameter)) for parameter in self._shared)
        said = [(self._entries, path, os.path.getsize(path) // 4 if path else 0, beside)]
        distributed.broadcast_object_list(said, 0, group=self._talk)
        self._entries, path, elements, self._reports_beside = said[0]
        for parameter in self._model.parameters():
            if not is_sharded(parameter):
                distributed.broadcast(parameter.detach(), 0)
        if self._boxes and path:
            self._sharded = ShardedArena(path, elements, self._boxes, self._entries, self.rank, self.ranks, self._talk)

    def _evaluate_all(self) -> Any:
        """A loop that said model.train() before it began goes on so, whatever the evaluation says."""
        modes = [(module, module.training) for module in self._model.modules()]
        random_numbers, self._evaluating = self._random(), True
        try:
            with torch.no_grad():
                return self._user_evaluate()
        finally:
            self._evaluating = False
            self._set_random(random_numbers)  # how often a run is evaluated is no matter of what it trains on
            for module, training in modes:
                module.training = training

    # ---- saving

    def _random(self) -> dict[str, Any]:
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "numpy": numpy.random.get_state(),
            "python": random.getstate(),
        }

    def _set_random(self, states: Mapping[str, Any]) -> None:
        torch.set_rng_state(states["torch"])
        if states["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(states["cuda"])
        numpy.random.set_state(states["numpy"])
        random.setstate(states["python"])

    def _own_state(self) -> dict[str, Any]:
        """What this rank alone has, with its shards as plain tensors."""
        return {
            "ranks": self.ranks,
            "model": plain(self._model.state_dict()),
            "optimizer": [plain(one.state_dict()) for one in self._optimizers()],
            **self._counted_state(),
            "random": self._random(),
        }

    def _counted_state(self) -> dict[str, Any]:
        said = {"state": _state.capture(self.state), "objects": _state.objects(self.state), "schedulers": _state.capture(self._schedules.given), "step": self.step}
        return said if self._average is None else {**said, "average": self._average.state_dict()}

    def _restore_counted(self, saved: Mapping[str, Any]) -> None:
        _state.restore(self.state, saved["state"], known=saved.get("objects", []))
        _state.restore(self._schedules.given, saved.get("schedulers", []), "scheduler")
        self._stood = saved.get("step", self._stood)
        if self._average is not None and "average" in saved:
            self._average.load_state_dict(saved["average"])

    def _save_shards(self, directory):
        """Each rank's state is a file; ranks that do not see the folder send theirs through rank 0."""
        file = io.BytesIO()
        torch.save(self._own_state(), file)
        files: list[Any] = [None] * self.ranks
        distributed.gather_object(file.getvalue(), files if self.rank == 0 else None, 0, group=self._talk)
        for rank, content in enumerate(files if self.rank == 0 else []):
            with open(os.path.join(directory, f"rank-{rank}.pt"), "wb") as out:
                out.write(content)

    def _load_shards(self, directory):
        contents: list[Any] = [None] * self.ranks
        if self.rank == 0:
            names = [name for name in os.listdir(directory) if name.startswith("rank-")]
            if len(names) != self.ranks:
                raise Refused(f"the checkpoint is of {len(names)} ranks, and there are {self.ranks}")
            for rank in range(self.ranks):
                with open(os.path.join(directory, f"rank-{rank}.pt"), "rb") as file:
                    contents[rank] = file.read()
        own = [None]
        distributed.scatter_object_list(own, contents if self.rank == 0 else None, 0, group=self._talk)
        saved = torch.load(io.BytesIO(own[0]), map_location="cpu", weights_only=False)  # what this program wrote on this island
        with torch.no_grad():
            for name, value in self._model.state_dict().items():
                local(value).copy_(saved["model"][name])
        for optimizer, kept in zip(self._optimizers(), saved["optimizer"]):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for number, values in kept["state"].items():
                values.update({key: like(value, parameters[number]) for key, value in values.items()})
            optimizer.load_state_dict(kept)
        self._restore_counted(saved)
        self._set_random(saved["random"])

    def _save_dcp(self, directory: str) -> None:
        kept: list[Any] = [{**self._counted_state(), "random": self._random()}]
        if self.ranks > 1:
            own, kept = kept[0], [None] * self.ranks
            distributed.gather_object(own, kept if self.rank == 0 else None, 0, group=self._talk)
        write_dcp(self._model, self._optimizers(), kept if self.rank == 0 else None, directory, self._talk)

    def _load_dcp(self, directory: str) -> None:
        see(directory)
        saved = read_dcp(self._model, self._optimizers(), directory, self.rank, self._talk)
        self._restore_counted(saved)
        self._set_random(saved["random"])

    def _saves_beside(self):
        """Ranks that share out their parameters give theirs to rank 0, which all of them stand still for."""
        return super()._saves_beside() and not (self._boxes and self.ranks > 1)

    def _to_save(self, beside):
        if self._boxes and self.ranks > 1:
            return self._save_shards
        states: list[Any] = [None] * self.ranks
        if self.ranks > 1:
            distributed.gather_object(self._random(), states if self.rank == 0 else None, 0, group=self._talk)
            if self.rank != 0:
                return None
        else:
            states = [self._random()]
        whole = {"model": self._model.state_dict(), "optimizer": _state.capture(self._optimizer), **self._counted_state(), "random": states}
        take = whole_or_captured(whole, beside)
        del whole
        return lambda directory: write_state(take(), directory)

    def _load(self, directory):
        kind = [is_dcp(directory)]
        if self.ranks > 1:
            distributed.broadcast_object_list(kind, 0, group=self._talk)
        if kind[0]:
            return self._load_dcp(directory)
        if self._boxes and self.ranks > 1:
            return self._load_shards(directory)
        where = "cpu"
        saved = None
        if self.rank == 0:
            path = os.path.join(directory, STATE)
            try:
                saved = torch.load(path, map_location=where, weights_only=False)  # what this program wrote on this island
            except TypeError:
                saved = torch.load(path, map_location=where)
        if self.ranks > 1:
            said = [saved]
            distributed.broadcast_object_list(said, 0, group=self._talk)
            saved = said[0]
        self._model.load_state_dict(saved["model"])
        _state.restore_whole(self._optimizer, saved["optimizer"], "optimizer")
        self._restore_counted(saved)
        self._set_random(saved["random"][min(self.rank, len(saved["random"]) - 1)])


def join(
    settings: Optional[Mapping[str, Any]] = None,
    *,
    name: Optional[str] = None,
    path: Optional[str] = None,
    steps: Optional[int] = None,
    every: int = 100,
    folder: Optional[str] = None,
) -> TorchIsland:
    """Joins the agent that started this program, or the one whose socket is at `path`; alone where there is none.

    settings  defaults for those of the run file
    steps     how many there are where there is no agent (None: without an end); with one the run file says it. island.training["steps"]
              has it either way, for a learning-rate schedule
    every     steps after which a program without an agent prints its losses, evaluates and saves
    folder    where it saves, and goes on from when it is started again; None: nothing is saved
    Under torchrun the process group is made if there is none (NCCL with CUDA, else gloo). Errors: LinkError.
    """
    alone = {"steps": steps, "every": every, "folder": folder}
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        return TorchIsland(connect(name, path, 1, torch.__version__, **alone), settings or {})
    die_with_parent()
    rank = distributed.get_rank() if distributed.is_initialized() else int(os.environ.get("RANK", "0"))
    trainer = connect(name, path, ranks, torch.__version__, **alone) if rank == 0 else None  # which talks for all
    if not distributed.is_initialized():
        meet_ranks(ranks, trainer)
    talk = distributed.new_group(backend="gloo")
    said = [dict(trainer.configuration) if trainer else None]
    distributed.broadcast_object_list(said, 0, group=talk)
    return TorchIsland(trainer or Listener(said[0]), settings or {}, rank, ranks, talk)
