"""Pre-trains a small Llama with transformers' Trainer, from nothing, with a tokenizer that is trained on the text.

    python3 pretrain.py     alone; on an island: --trainer pretrain='python3 /srv/pretrain.py'
"""
import os

import atoll.torch as atoll
import torch
from atoll.callbacks import attach
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

island = atoll.join({"text": os.path.abspath(__file__), "length": 64, "width": 64, "rate": 3e-3, "out": "pretrained"}, steps=100)
settings = island.settings
with open(settings["text"], encoding="utf-8") as file:
    text = file.read()
pieces = ByteLevelBPETokenizer()
pieces.train_from_iterator([text], vocab_size=512, min_frequency=2, special_tokens=["<end>"], show_progress=False)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, eos_token="<end>", pad_token="<end>")
windows = torch.tensor(tokenizer(text)["input_ids"]).unfold(0, settings["length"], settings["length"] // 4)
rows = [{"input_ids": window, "labels": window} for window in windows]

torch.manual_seed(island.seed)
width = settings["width"]
shape = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=settings["length"], **shape))
args = TrainingArguments(output_dir=f"{settings['out']}-{island.name}", per_device_train_batch_size=8, learning_rate=settings["rate"], save_strategy="no", report_to=[], use_cpu=not torch.cuda.is_available())
trainer = Trainer(model, args, train_dataset=rows[:-2], eval_dataset=rows[-2:])
attach(island, trainer)
trainer.train()
if island.first and island.rank == 0:
    trainer.save_model(settings["out"])
    tokenizer.save_pretrained(settings["out"])
