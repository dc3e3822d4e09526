"""Programs over real frameworks: `frameworks_loops.py huggingface|lora|sft|accelerate|lightning|muon [STEPS FOLDER]`. Run by frameworks_test.py.

Each trains a small Llama, or a line for Lightning and Muon, and writes what it has trained on as followed.py reads it.
"""

import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from train_loops import SAMPLES, Rows, held_out, loss_of, passes_of, rate_at

import atoll.torch as atoll
from atoll._names import plainly_named

BATCH, ACCUMULATION = 3, 2


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        start = int(torch.randint(0, 32, (1,), generator=draw))
        tokens = (start + 3 * torch.arange(16)) % 32
        return {"input_ids": tokens, "labels": tokens, "number": index}


class Held(Texts):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return super().__getitem__(1000 + index)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=16, tie_word_embeddings=False, **shape))


class Written:
    """FOLDER/ISLAND.steps, and what is kept at the end."""

    def __init__(self, island, folder):
        self.island, self.folder = island, folder
        self.file = open(f"{folder}/{island.name}.steps", "a", buffering=1)

    def batch(self, rate, numbers):
        """Before its step; the island's position is that of the step's first sample."""
        island = self.island
        said = {"step": island.step, "rate": rate, "position": island.position, "samples": numbers, "passes": passes_of(island, len(numbers))}
        self.file.write(json.dumps(said) + "\n")
        time.sleep(island.settings.get("pause", 0))

    def end(self, model, loss, **more):
        island = self.island
        weights = dict(plainly_named(model, model.state_dict().items()))
        kept = {"model": weights, "step": island.step, "complete": island.complete, "first": island.first, "loss": float(loss), **more}
        torch.save(kept, f"{self.folder}/{island.name}.pt")


def joined(steps, folder):
    island = atoll.join({"folder": folder, "pause": 0.0}, steps=steps, every=10, folder=folder and folder + "/kept")
    return island, Written(island, island.settings["folder"])


def llama_loss(model):
    model.eval()
    rows = torch.stack([Texts()[1000 + index]["input_ids"] for index in range(64)])
    with torch.no_grad():
        return model(input_ids=rows, labels=rows).loss


def watching(written, numbers, seen):
    """A callback that writes down each step's batches, and what the Trainer logs and saves."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **rest):
            written.batch(optimizer.param_groups[0]["lr"], list(numbers))
            numbers.clear()

        def on_log(self, args, state, control, logs=None, **rest):
            seen.append({"step": state.global_step, **(logs or {})})

        def on_save(self, args, state, control, **rest):
            seen.append({"step": state.global_step, "saved": True})

    return Watch()


def given(written, **more):
    """Arguments of the Trainer and its heirs; $ARGUMENTS has a test's own."""
    island = written.island
    own = dict(
        output_dir=f"{written.folder}/{island.name}", per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATION, learning_rate=0.01,
        lr_scheduler_type="linear", warmup_steps=0, logging_steps=10, save_steps=50, eval_strategy="steps", eval_steps=40, max_grad_norm=1.0,
        report_to=[], disable_tqdm=True, use_cpu=True, bf16=island.settings.get("bf16", False),
    )  # fmt: skip
    return {**own, **more, **json.loads(os.environ.get("ARGUMENTS", "{}"))}


def adapters():
    """PEFT's LoRA beside each linear layer, and the head trained whole."""
    from peft import LoraConfig

    return LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM")


def huggingface(steps=None, folder=None, adapt=lambda model: model):
    from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

    from atoll.callbacks import attach

    island, written = joined(steps, folder)
    numbers, seen = [], []

    def collate(rows):
        numbers.extend(row["number"] for row in rows if row["number"] < SAMPLES)  # of others an evaluation
        return {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}

    args = TrainingArguments(**given(written, metric_for_best_model="eval_loss", remove_unused_columns=False))
    callbacks = [watching(written, numbers, seen)] + ([EarlyStoppingCallback(1, early_stopping_threshold=100.0)] if os.environ.get("STOPS") else [])
    trainer = Trainer(adapt(llama()), args, train_dataset=Texts(), eval_dataset=Held(), data_collator=collate, callbacks=callbacks)
    attach(island, trainer)
    trainer.train()
    written.end(trainer.model, llama_loss(trainer.model), seen=seen)


def lora(steps=None, folder=None):
    from peft import get_peft_model

    huggingface(steps, folder, lambda model: get_peft_model(model, adapters()))


def sft(steps=None, folder=None):
    """Text, a tokenizer that is trained on it, and TRL's trainer with adapters: the number of a row is its first word."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    from atoll.callbacks import attach

    island, written = joined(steps, folder)
    numbers, seen = [], []
    rows = [f"n{row} " + " ".join(f"w{token}" for token in Texts()[row]["input_ids"].tolist()) for row in range(SAMPLES + 16)]
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.train_from_iterator(rows, trainers.WordLevelTrainer(special_tokens=["[UNK]", "[EOS]"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", eos_token="[EOS]", pad_token="[EOS]")
    of_row = {tokenizer.convert_tokens_to_ids(f"n{row}"): row for row in range(SAMPLES)}
    torch.manual_seed(1)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=32, tie_word_embeddings=False, **shape))
    texts = Dataset.from_dict({"text": rows})
    trainer = SFTTrainer(
        model, SFTConfig(**given(written, max_length=32)), train_dataset=texts.select(range(SAMPLES)), eval_dataset=texts.select(range(SAMPLES, SAMPLES + 16)),
        processing_class=tokenizer, peft_config=adapters(), callbacks=[watching(written, numbers, seen)],
    )  # fmt: skip
    inner = trainer.data_collator

    def collate(examples):
        numbers.extend(of_row[row["input_ids"][0]] for row in examples if row["input_ids"][0] in of_row)
        return inner(examples)

    trainer.data_collator = collate
    attach(island, trainer)
    trainer.train()
    written.end(trainer.model, trainer.evaluate()["eval_loss"], seen=seen)


def muon(steps=None, folder=None):
    """Muon for the matrices and AdamW for the rest, as its page says: two optimisers, two schedulers."""
    island, written = joined(steps, folder)
    torch.manual_seed(1)
    body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    flat = [parameter for parameter in body.parameters() if parameter.ndim < 2]
    opts = [torch.optim.Muon([parameter for parameter in body.parameters() if parameter.ndim == 2], lr=0.01), torch.optim.AdamW(flat, 0.01)]
    scheds = [torch.optim.lr_scheduler.LambdaLR(opt, lambda step: rate_at(step, island.training["steps"])) for opt in opts]
    loader = island.loader(Rows(), batch_size=2 * BATCH)
    with island.train(body, opts, scheduler=scheds, evaluate=lambda: held_out(body)):
        for rows, wanted, found in loader:
            written.batch(opts[0].param_groups[0]["lr"], found.tolist())
            loss = loss_of(body, rows, wanted)
            loss.backward()
            for one in (*opts, *scheds):
                one.step()
            body.zero_grad()
            island.log(loss=loss)
    with torch.no_grad():
        written.end(body, held_out(body))


def accelerate(steps=None, folder=None):
    from accelerate import Accelerator

    island, written = joined(steps, folder)
    accelerator, model = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION), llama()
    opt = torch.optim.AdamW(model.parameters(), 0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: max(0.0, 1 - step / island.training["steps"]))
    model, opt, sched = accelerator.prepare(model, opt, sched)
    loader, numbers = island.loader(Texts(), batch_size=BATCH, num_workers=1), []
    with island.train(model, opt, scheduler=sched, evaluate=lambda: llama_loss(model)):
        for batch in loader:
            model.train()
            with accelerator.accumulate(model):
                numbers += batch.pop("number").tolist()
                if accelerator.sync_gradients:
                    written.batch(opt.param_groups[0]["lr"], list(numbers))
                    numbers.clear()
                loss = model(**batch).loss
                island.log(loss=loss)
                accelerator.backward(loss)
                opt.step()
                sched.step()
                opt.zero_grad()
    written.end(accelerator.unwrap_model(model), llama_loss(model))


def lightning(steps=None, folder=None):
    import lightning
    from lightning.pytorch.callbacks import EarlyStopping

    from atoll.callbacks import LightningCallback

    island, written = joined(steps, folder)
    settings, numbers = island.settings, []
    manual = settings.get("manual") or os.environ.get("MANUAL")

    class Line(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
            self.automatic_optimization = not manual

        def configure_optimizers(self):
            opt = torch.optim.AdamW(self.body[:2].parameters() if manual else self.body.parameters(), 0.01)
            sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: rate_at(step, island.training["steps"]))
            config = {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}
            return [config, {"optimizer": torch.optim.SGD(self.body[2].parameters(), 0.01)}] if manual else config

        def training_step(self, batch, number):
            rows, wanted, found = batch
            numbers.extend(found.tolist())
            loss = loss_of(self.body, rows, wanted)
            if manual:
                for opt in self.optimizers():
                    opt.zero_grad()
                self.manual_backward(loss)
                self.before()
                for opt in self.optimizers():
                    opt.step()
                self.lr_schedulers().step()
            return loss

        def before(self):
            written.batch(self.trainer.optimizers[0].param_groups[0]["lr"], list(numbers))
            numbers.clear()

        def on_before_optimizer_step(self, optimizer):
            if not manual:
                self.before()

        def validation_step(self, batch, number):
            self.log("held_out", loss_of(self.body, *batch[:2]))

    module = Line()
    checks = torch.utils.data.DataLoader([Rows()[1000 + index] for index in range(16)], 8)
    stops = [EarlyStopping("held_out", min_delta=100.0, patience=1)] if os.environ.get("STOPS") else []
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accumulate_grad_batches=1 if manual else ACCUMULATION, val_check_interval=20, default_root_dir=written.folder,
        callbacks=[LightningCallback(island, evaluate=lambda: held_out(module.body)), *stops],
        **{"max_epochs": -1, **json.loads(os.environ.get("ARGUMENTS", "{}"))},
    )  # fmt: skip
    trainer.fit(module, island.loader(Rows(), batch_size=2 * BATCH if manual else BATCH), checks)  # after the callback, as the page has it
    with torch.no_grad():
        written.end(module, held_out(module.body))


if __name__ == "__main__":
    programs = {"huggingface": huggingface, "lora": lora, "sft": sft, "accelerate": accelerate, "lightning": lightning, "muon": muon}
    programs[sys.argv[1]](*[int(word) if word.isdecimal() else word for word in sys.argv[2:]])
