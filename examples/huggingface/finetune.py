"""Fine-tunes a model's folder with PEFT's LoRA and transformers' Trainer. The islands share the adapters; a digest of the frozen rest is compared.

    python3 finetune.py     alone; the folder is $BASE, or what pretrain.py has written
"""
import os

import atoll.torch as atoll
import torch
from atoll.callbacks import attach
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

island = atoll.join({"base": os.environ.get("BASE", "pretrained"), "text": os.path.abspath(__file__), "length": 32, "rate": 1e-2, "out": "adapters"}, steps=40)
settings = island.settings
tokenizer = AutoTokenizer.from_pretrained(settings["base"])
with open(settings["text"], encoding="utf-8") as file:
    windows = torch.tensor(tokenizer(file.read())["input_ids"]).unfold(0, settings["length"], settings["length"] // 4)
rows = [{"input_ids": window, "labels": window} for window in windows]

torch.manual_seed(island.seed)
model = get_peft_model(AutoModelForCausalLM.from_pretrained(settings["base"]), LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
args = TrainingArguments(output_dir=f"{settings['out']}-{island.name}", per_device_train_batch_size=4, learning_rate=settings["rate"], save_strategy="no", report_to=[], use_cpu=not torch.cuda.is_available())
trainer = Trainer(model, args, train_dataset=rows[:-2], eval_dataset=rows[-2:])
attach(island, trainer)
trainer.train()
if island.first and island.rank == 0:
    model.save_pretrained(settings["out"])
