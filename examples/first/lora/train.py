"""PEFT's LoRA on a small Llama: the islands share the adapters alone. Started by an agent, or alone: python3 train.py"""
import pydoc_data.topics  # what help("for") and the like show, about 450 KB; licence: PSF
import sys

try:
    import atoll.torch as atoll
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
except ModuleNotFoundError as missing:
    what = "Atoll's wheel (docs/install.md)" if missing.name == "atoll" else "it: " + sys.executable + " -m pip install numpy torch transformers peft"
    sys.exit(f"the Python package {missing.name} is missing; install {what}")


def loss_of(windows):
    return model(input_ids=windows, labels=windows).loss


island = atoll.join({"layers": 2, "width": 64, "rank": 8, "length": 64, "batch": 8, "rate": 1e-2}, steps=120)
settings = island.settings
gpus = torch.cuda.device_count()
device = torch.device("cuda", island.part % gpus) if gpus > 0 else torch.device("cpu")
topics = pydoc_data.topics.topics
text = "\n".join(topics[name] for name in sorted(topics)).encode()[:400_000]  # equally long with every Python
windows = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, settings["length"], settings["length"])
held_out, loader = windows[::200].to(device), island.loader([window for i, window in enumerate(windows) if i % 200], batch_size=settings["batch"])

torch.manual_seed(1)  # the same base on every island: a digest of it is compared
width = settings["width"]
base = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=settings["layers"],
                                    num_attention_heads=4, max_position_embeddings=settings["length"]))  # fmt: skip
how = LoraConfig(r=settings["rank"], target_modules="all-linear", modules_to_save=["embed_tokens", "lm_head"], task_type="CAUSAL_LM")
model = get_peft_model(base, how).to(device)
opt = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], settings["rate"])
with island.train(model, opt, evaluate=lambda: loss_of(held_out)):
    for batch in loader:
        loss = loss_of(batch.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)

if island.first:  # one of the islands, once the run is completed
    model.save_pretrained("adapter")
