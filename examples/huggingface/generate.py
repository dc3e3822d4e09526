"""Speaks with a model's folder and the adapters that `atoll export` wrote: `python3 generate.py pretrained adapters.safetensors "def "`."""
import sys

import atoll.torch as atoll
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

base, adapters, prompt = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(base)
model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
found = atoll.join().load(model, adapters, strict=False)
if found.left_over or any("lora_" in name for name in found.missing):
    sys.exit(f"{adapters} has not the adapters of this model: {found}")
words = tokenizer(prompt, return_tensors="pt")
print(tokenizer.decode(model.generate(**words, max_new_tokens=20, do_sample=False, pad_token_id=tokenizer.eos_token_id)[0]))
