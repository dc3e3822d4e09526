"""An island in Hugging Face's Trainer, and as a callback of Lightning's.

    island = atoll.torch.join()
    trainer = transformers.Trainer(model, args, train_dataset=dataset, …)
    attach(island, trainer)                       # before trainer.train()

    trainer = lightning.Trainer(callbacks=[LightningCallback(island)])
    trainer.fit(module, island.loader(dataset, batch_size=32))

Both follow the run as island.train() does: the optimisers' hooks count its steps, samples come from island.loader(), schedulers stand at the run's
step, and the trainer ends with the run. What would end it otherwise (a number of steps or epochs) is compared with the run and refused with both
numbers; an early stop is the island's `enough`.

A loop whose data the program has cut itself, to island.part of island.parts, says data="own" and how many samples a step takes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from ._island import Refused

if TYPE_CHECKING:  # which have their bases' methods by name
    _HuggingFace = _Lightning = object
else:
    try:
        from transformers import TrainerCallback as _HuggingFace
    except ImportError:
        _HuggingFace = object
    try:
        from lightning.pytorch import Callback as _Lightning
    except ImportError:
        try:
            from pytorch_lightning import Callback as _Lightning
        except ImportError:
            _Lightning = object

__all__ = ["HuggingFaceCallback", "LightningCallback", "attach"]

_AVERAGES = "StochasticWeightAveraging", "WeightAveraging"  # Lightning's, and what is made of them
_DEFAULT_EPOCHS = 3.0  # of transformers.TrainingArguments: nobody asked for them


def _refuse_whole_data(island: Any, data: Optional[str]) -> None:
    if data not in (None, "own"):
        raise Refused(f"data is {data!r}; 'own' says that the loop's data are this island's part alone")
    if island.parts > 1 and data is None:
        raise Refused(
            f"this island has part {island.part} of {island.parts} of the data, and the loop's data are not cut: all islands would train on the same samples; "
            f"cut them, as by dataset.shard({island.parts}, {island.part}), and say data='own'"
        )


def _refuse_end(island: Any, what: str, steps: float) -> None:
    """A framework that ends by itself after `steps`."""
    run = island.training.get("steps")
    if run and steps != run:
        raise Refused(f"{what} is {steps:g} steps, and the run has {run} ([training].steps): leave it out, and the trainer ends with the run")


def _refuse_ranks(island: Any, ranks: int) -> None:
    if ranks != island.ranks:
        raise Refused(f"the trainer has {ranks} ranks, and island.join() was called in a program of {island.ranks}: start it by torchrun, which makes them before")


def _refuse_own_order(trainer: Any) -> None:
    """Whose samples come in an order of its own, which island.loader() would put another in the place of."""
    strategy = getattr(trainer.args, "train_sampling_strategy", "random")  # of transformers 5; before, a flag
    orders = [f"train_sampling_strategy={strategy!r}"] if strategy != "random" else ["group_by_length"] if getattr(trainer.args, "group_by_length", False) else []
    for name in ("get_train_dataloader", "_get_train_sampler"):
        if not getattr(getattr(trainer, name, None), "__module__", "transformers.").startswith("transformers."):
            orders.append(f"{type(trainer).__name__}.{name}()")
    if orders:
        raise Refused(
            f"{orders[0]} would be left out, for the islands' samples come in an order of the run's seed: leave it out; or cut the dataset to island.part of "
            "island.parts, and add HuggingFaceCallback(island, samples=…, data='own') in place of attach()"
        )


class _Follower:
    """What both callbacks are to island.train()."""

    _training: Any = None

    def __init__(self, island: Any, samples: int, evaluate: Optional[Callable[[], Any]]):
        self._island, self._samples, self._evaluate = island, samples, evaluate

    def _begin(self, model: Any, optimizer: Any, **how: Any) -> bool:
        self._training = self._island.train(model, optimizer, evaluate=self._evaluate, **how)
        self._training.__enter__()
        return bool(self._training.goes_on())

    def _stepped(self) -> bool:
        """An optimiser may have stepped. Whether the run goes on."""
        self._training.took(self._samples)
        return bool(self._training.goes_on())

    def _end(self) -> None:
        training, self._training = self._training, None
        if training is not None:
            training.__exit__(None, None, None)


class HuggingFaceCallback(_Follower, _HuggingFace):
    """For data that the program has cut itself; attach() makes one that takes the trainer's data over, and tells each step's loss.

    samples  in one optimiser's step of all ranks together
    data     "own" says that the trainer's data are this island's part
    """

    def __init__(self, island: Any, samples: int = 0, evaluate: Optional[Callable[[], Any]] = None, data: Optional[str] = None, trainer: Any = None):
        super().__init__(island, samples, evaluate)
        self._trainer = trainer
        if trainer is None:
            _refuse_whole_data(island, data)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, lr_scheduler: Any = None, **rest: Any) -> None:
        from ._schedule import scheduler_in

        if getattr(state, "global_step", 0) > 0:
            raise Refused(
                f"resume_from_checkpoint stands at step {state.global_step}, and the run goes on from its own checkpoint, which has the optimiser, the "
                "scheduler and the data of one instant: leave it out"
            )
        follows = scheduler_in(lr_scheduler) is not None
        kept = {} if follows or lr_scheduler is None else {"scheduler": lr_scheduler}  # one of another library's
        goes_on = self._begin(model, optimizer, scheduler=lr_scheduler if follows else None, state=kept)
        for name in ("_initial_global_step", "_globalstep_last_logged"):
            if hasattr(self._trainer, name):
                setattr(self._trainer, name, self._island.step)
        self._follow(state, control, goes_on)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        stops = control.should_training_stop
        self._follow(state, control, self._stepped(), stops)

    def on_evaluate(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """An early stop, which another callback has said before."""
        if self._training is not None and self._training.open:
            self._follow(state, control, True, control.should_training_stop)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._end()

    def _follow(self, state: Any, control: Any, goes_on: bool, stops: bool = False) -> None:
        """The Trainer's step and epoch are the run's, so that what it logs, saves and evaluates by them is right after a jump, too."""
        if goes_on and stops and getattr(state, "global_step", 0) != self._island.training.get("steps"):
            self._island.enough("a callback of the Trainer has stopped the training")
        control.should_training_stop = not goes_on
        if state is not None:
            state.global_step = self._island.step
            if self._island._loader is not None:
                state.epoch = self._island._loader.passes


class _Stream:
    """The island's loader without a length: the Trainer takes batches until there are no more."""

    def __init__(self, loader: Any):
        self.dataset, self._loader = loader.dataset, loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


def attach(island: Any, trainer: Any, evaluate: Optional[Callable[[], Any]] = None) -> None:
    """Has transformers' Trainer follow the run; before trainer.train(). Its training data come from island.loader(), the number of its steps from
    the run, so its scheduler fits; a step's loss is the step's own. Its logs, evaluations and checkpoints count the run's steps.

    evaluate  the loss on held-out data; None: of the trainer's eval_dataset, if it has one
    Errors: Refused for max_steps or epochs that are not the run's, load_best_model_at_end, resume_from_checkpoint and auto_find_batch_size, and for
    an order of samples other than random: train_sampling_strategy, group_by_length, a get_train_dataloader() or sampler of the trainer's own.
    """
    args, dataset = trainer.args, trainer.train_dataset
    if args.load_best_model_at_end:
        raise Refused("load_best_model_at_end would put another model in the place of the run's, which is exported: leave it out, and keep the best by status")
    if args.auto_find_batch_size:
        raise Refused("auto_find_batch_size changes the samples of a step in the middle: say per_device_train_batch_size")
    _refuse_own_order(trainer)
    _refuse_ranks(island, args.world_size)
    collate = trainer.data_collator
    if type(dataset).__module__.startswith("datasets."):
        dataset = trainer._remove_unused_columns(dataset, description="Training")
    else:
        collate = trainer._get_collator_with_removed_columns(collate, description="Training")
    workers = args.dataloader_num_workers
    more = {"prefetch_factor": args.dataloader_prefetch_factor} if workers and args.dataloader_prefetch_factor else {}
    loader = island.loader(dataset, trainer._train_batch_size, collate_fn=collate, num_workers=workers, pin_memory=args.dataloader_pin_memory and args.n_gpu > 0, **more)
    of_epochs = math.ceil(args.num_train_epochs * -(-len(loader) // args.gradient_accumulation_steps))
    if args.max_steps > 0:
        _refuse_end(island, f"max_steps={args.max_steps}", args.max_steps)
    elif args.num_train_epochs != _DEFAULT_EPOCHS:
        _refuse_end(island, f"num_train_epochs={args.num_train_epochs:g}, of this island's data,", of_epochs)
    args.max_steps = island.training.get("steps") or (args.max_steps if args.max_steps > 0 else of_epochs)
    trainer.get_train_dataloader = lambda: _Stream(loader)
    inner = trainer.training_step

    def training_step(*given: Any, **named: Any) -> Any:
        loss = inner(*given, **named)  # the batch's share of its step's loss, on its device
        island.log(loss=loss * trainer.current_gradient_accumulation_steps)
        return loss

    def held_out() -> Any:
        said = trainer.evaluation_loop(trainer.get_eval_dataloader(), "held-out data", prediction_loss_only=True)
        getattr(trainer, "_metrics", {}).get("eval", {}).clear()  # TRL's, which its next evaluation would take for its own
        return said.metrics["eval_loss"]

    trainer.training_step = training_step
    if evaluate is None and trainer.eval_dataset is not None:
        evaluate = held_out
    trainer.add_callback(HuggingFaceCallback(island, evaluate=evaluate, trainer=trainer))


class LightningCallback(_Follower, _Lightning):
    """trainer.fit(module, island.loader(dataset, batch_size=32)); automatic and manual optimisation, one optimiser or several, accumulation.
    Schedulers that Lightning steps once an epoch are saved and restored, and not moved.

    samples  in one batch of all ranks together, where the trainer's data are not island.loader()'s: data="own" says that they are this island's part
    Errors: Refused for max_steps, max_epochs or max_time that are not the run's, and for callbacks that average weights.
    """

    def __init__(self, island: Any, samples: int = 0, evaluate: Optional[Callable[[], Any]] = None, data: Optional[str] = None):
        super().__init__(island, samples, evaluate)
        self._data = data  # compared once the loader is known, which is made after the callback as a rule

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        from ._schedule import scheduler_in

        loader = self._island._loader
        if loader is None or getattr(trainer, "train_dataloader", None) is not loader:
            _refuse_whole_data(self._island, self._data)
        _refuse_ranks(self._island, getattr(trainer, "world_size", 1))
        self._refuse_ends(trainer)
        self._refuse_averages(trainer)
        if self in (getattr(trainer, "callbacks", None) or []):  # behind those that stop early; another list, for this one is being gone through
            trainer.callbacks = [one for one in trainer.callbacks if one is not self] + [self]
        followed, kept = [], []
        for config in getattr(trainer, "lr_scheduler_configs", None) or []:
            each_step = config.interval == "step" and config.frequency == 1 and not config.reduce_on_plateau and scheduler_in(config.scheduler) is not None
            (followed if each_step else kept).append(config.scheduler)
        self._go_on(trainer, self._begin(pl_module, list(trainer.optimizers or []), scheduler=followed, state={"schedulers": kept}))

    def _refuse_averages(self, trainer: Any) -> None:
        for one in getattr(trainer, "callbacks", None) or []:
            if any(kind.__name__ in _AVERAGES for kind in type(one).__mro__):
                raise Refused(
                    f"the callback {type(one).__name__} would put an average of this island's own in the place of the run's model, which is exported: leave it out"
                )

    def _refuse_ends(self, trainer: Any) -> None:
        if getattr(trainer, "max_steps", -1) not in (-1, None):
            _refuse_end(self._island, f"max_steps={trainer.max_steps}", trainer.max_steps)
        epochs, batches = getattr(trainer, "max_epochs", None), getattr(trainer, "num_training_batches", None)
        if epochs not in (-1, None) and batches not in (None, math.inf):
            steps = epochs * -(-batches // trainer.accumulate_grad_batches)
            if steps < (self._island.training.get("steps") or 0):
                _refuse_end(self._island, f"max_epochs={epochs}, of this island's data,", steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: Any) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and self._training.open:
            self._island.log(loss=loss * getattr(trainer, "accumulate_grad_batches", 1))  # by which Lightning has divided it
        self._go_on(trainer, self._stepped())

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """An early stop, which another callback has said before."""
        if self._training is not None and self._training.open and trainer.should_stop:
            self._island.enough("a callback of the Trainer has stopped the training")
            trainer.should_stop = False

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def _go_on(self, trainer: Any, goes_on: bool) -> None:
        trainer.should_stop = not goes_on
