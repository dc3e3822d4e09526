"""A small GPT that learns to write Python's language reference, byte by byte. Started by an agent, or alone: python3 train.py"""
import math
import pydoc_data.topics  # what help("for") and the like show, about 450 KB; licence: PSF
import sys

try:
    import atoll.torch as atoll
    import torch
except ModuleNotFoundError as missing:
    what = "Atoll's wheel (docs/install.md)" if missing.name == "atoll" else "it: " + sys.executable + " -m pip install numpy torch"
    sys.exit(f"the Python package {missing.name} is missing; install {what}")
F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention, self.project = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.attention(self.norm1(x)).split(c, 2))
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(2, 3) / math.sqrt(c // self.heads)).masked_fill(later, float("-inf"))
        x = x + self.project((scores.softmax(3) @ v).transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(torch.nn.Module):
    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(256, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 256)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places.weight[: x.shape[1]])))


def loss_of(windows):
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def write(prompt, count):
    """So many bytes of the model's own behind the prompt."""
    text = torch.tensor([list(prompt.encode())], device=device)
    with torch.no_grad():
        for _ in range(count):
            said = model(text[:, -settings["length"] :])[0, -1] / 0.7
            text = torch.cat([text, torch.multinomial(said.softmax(0), 1)[None]], 1)
    return bytes(text[0].tolist()).decode(errors="replace")


island = atoll.join({"layers": 2, "width": 128, "heads": 4, "length": 64, "batch": 16, "rate": 2e-3}, steps=300)
settings = island.settings
gpus = torch.cuda.device_count()
device = torch.device("cuda", island.part % gpus) if gpus > 0 else torch.device("cpu")
topics = pydoc_data.topics.topics
text = "\n".join(topics[name] for name in sorted(topics)).encode()[:400_000]  # equally long with every Python
windows = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, settings["length"] + 1, settings["length"])
held_out, data = windows[::100].to(device), [window for i, window in enumerate(windows) if i % 100]
loader = island.loader(data, batch_size=settings["batch"])

torch.manual_seed(island.seed)  # the same initial parameters on every island
model = GPT(settings["layers"], settings["width"], settings["heads"], settings["length"]).to(device)
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
print(f"trains on {device}, {len(data)} windows of text")
with island.train(model, opt, evaluate=lambda: loss_of(held_out)):
    for batch in loader:
        loss = loss_of(batch.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)

if island.first:  # one of the islands, once the run is completed
    torch.save(model.state_dict(), "model.pt")
    with open("sample.txt", "w") as file:
        file.write(write("The ", 600) + "\n")
