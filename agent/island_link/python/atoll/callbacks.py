"""An island as a callback of Hugging Face's Trainer and of Lightning's.

    island = atoll.torch.join()
    trainer = transformers.Trainer(model, args, callbacks=[HuggingFaceCallback(island, samples=args.train_batch_size)], …)
    trainer = lightning.Trainer(callbacks=[LightningCallback(island, samples=32)], …)

Each begins with the run, moves the schedulers to the run's step, is told of every optimiser's step, and stops the trainer when the run is over.
The run file says how many steps
there are; the framework's own limit should be no lower.

The framework cuts its data among the ranks of one trainer, and knows nothing of islands. With more than one part the program cuts them first,
to island.part of island.parts, and says so: data="own".
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from ._island import Refused

try:
    from transformers import TrainerCallback as _HuggingFace
except ImportError:
    _HuggingFace = object  # the protocol is methods by name
try:
    from lightning.pytorch import Callback as _Lightning
except ImportError:
    try:
        from pytorch_lightning import Callback as _Lightning
    except ImportError:
        _Lightning = object

__all__ = ["HuggingFaceCallback", "LightningCallback"]


def _refuse_whole_data(island: Any, data: Optional[str]) -> None:
    if data not in (None, "own"):
        raise Refused(f"data is {data!r}; 'own' says that the loop's data are this island's part alone")
    if island.parts > 1 and data is None:
        raise Refused(
            f"this island has part {island.part} of {island.parts} of the data, and the loop's data are not cut: all islands would train on the same samples; "
            f"cut them, as by dataset.shard({island.parts}, {island.part}), and say data='own'"
        )


class HuggingFaceCallback(_HuggingFace):
    """samples: in one optimiser's step of all ranks together. data: "own" says that the trainer's data are this island's part."""

    def __init__(self, island: Any, samples: int, evaluate: Optional[Callable[[], Any]] = None, data: Optional[str] = None):
        _refuse_whole_data(island, data)
        self._island, self._samples, self._evaluate, self._loss = island, samples, evaluate, None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **rest):
        from ._schedule import scheduler_in

        follows = scheduler_in(lr_scheduler) is not None
        kept = {} if follows or lr_scheduler is None else {"scheduler": lr_scheduler}  # one of another library's
        self._island.start(model, optimizer, scheduler=lr_scheduler if follows else None, state=kept, evaluate=self._evaluate)
        self._go_on(control)

    def on_log(self, args, state, control, logs=None, **rest):
        self._loss = (logs or {}).get("loss", self._loss)

    def on_step_end(self, args, state, control, **rest):
        self._island.done(self._loss, samples=self._samples)
        self._loss = None
        self._go_on(control)

    def on_train_end(self, args, state, control, **rest):
        self._island.leave()

    def _go_on(self, control: Any) -> None:
        if not self._island.wants_step():
            control.should_training_stop = True


class LightningCallback(_Lightning):
    """samples: in one batch of all ranks together. Without gradient accumulation, where a batch is a step. data: "own" says that the
    trainer's data are this island's part. Schedulers that Lightning steps once an epoch are saved and restored, and not moved."""

    def __init__(self, island: Any, samples: int, evaluate: Optional[Callable[[], Any]] = None, data: Optional[str] = None):
        _refuse_whole_data(island, data)
        self._island, self._samples, self._evaluate = island, samples, evaluate

    def on_train_start(self, trainer, pl_module):
        from ._schedule import scheduler_in

        followed, kept = [], []
        for config in getattr(trainer, "lr_scheduler_configs", None) or []:
            each_step = config.interval == "step" and config.frequency == 1 and not config.reduce_on_plateau and scheduler_in(config.scheduler) is not None
            (followed if each_step else kept).append(config.scheduler)
        optimizers = list(trainer.optimizers or [])
        self._island.start(pl_module, optimizers, scheduler=followed, state={"schedulers": kept}, evaluate=self._evaluate)
        self._go_on(trainer)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._island.done(loss, samples=self._samples)
        self._go_on(trainer)

    def on_train_end(self, trainer, pl_module):
        self._island.leave()

    def _go_on(self, trainer: Any) -> None:
        if not self._island.wants_step():
            trainer.should_stop = True
