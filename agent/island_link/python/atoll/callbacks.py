"""An island as a callback of Hugging Face's Trainer and of Lightning's.

    island = atoll.torch.join()
    trainer = transformers.Trainer(model, args, callbacks=[HuggingFaceCallback(island, samples=args.train_batch_size)], …)
    trainer = lightning.Trainer(callbacks=[LightningCallback(island, samples=32)], …)

Each begins with the run, is told of every optimiser's step, and stops the trainer when the run is over. The run file says how many steps
there are; the framework's own limit should be no lower.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

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


class HuggingFaceCallback(_HuggingFace):
    """samples: in one optimiser's step of all ranks together."""

    def __init__(self, island: Any, samples: int, evaluate: Optional[Callable[[], Any]] = None):
        self._island, self._samples, self._evaluate, self._loss = island, samples, evaluate, None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **rest):
        kept = {"scheduler": lr_scheduler} if lr_scheduler is not None else {}
        self._island.start(model, optimizer, state=kept, evaluate=self._evaluate)
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
    """samples: in one batch of all ranks together. Without gradient accumulation, where a batch is a step."""

    def __init__(self, island: Any, samples: int, evaluate: Optional[Callable[[], Any]] = None):
        self._island, self._samples, self._evaluate = island, samples, evaluate

    def on_train_start(self, trainer, pl_module):
        optimizer = trainer.optimizers[0] if trainer.optimizers else None
        self._island.start(pl_module, optimizer, evaluate=self._evaluate)
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
