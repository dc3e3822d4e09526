"""An image classifier with BatchNorm: rings, squares or crosses? Started by an agent, or alone: python3 train.py"""
import sys

try:
    import atoll.torch as atoll
    import torch
except ModuleNotFoundError as missing:
    what = "Atoll's wheel (docs/install.md)" if missing.name == "atoll" else "it: " + sys.executable + " -m pip install numpy torch"
    sys.exit(f"the Python package {missing.name} is missing; install {what}")
F = torch.nn.functional
SIZE, KINDS = 20, 3


class Shapes:
    """So many drawn images; the same index gives the same image on every island."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        radius, x, y = (torch.rand(3, generator=draw) * torch.tensor([3, 4, 4]) + torch.tensor([4, 7, 7])).tolist()
        down, right = torch.meshgrid(torch.arange(SIZE) - y, torch.arange(SIZE) - x, indexing="ij")
        far, near = torch.maximum(down.abs(), right.abs()), torch.minimum(down.abs(), right.abs())
        kind = index % KINDS
        shape = ((down**2 + right**2).sqrt() - radius).abs() < 1, (far - radius + 1).abs() < 1, (near < 1) & (far < radius)
        return (shape[kind] + 0.8 * torch.randn(SIZE, SIZE, generator=draw))[None], kind


def batch_of(pairs):
    images, kinds = zip(*pairs)
    return torch.stack(images).to(device), torch.tensor(kinds, device=device)


def validate():
    """The loss on images that nobody trains on, and how many of them are told apart."""
    model.eval()
    with torch.no_grad():
        said = model(held_out[0])
    model.train()
    return F.cross_entropy(said, held_out[1]), {"accuracy": (said.argmax(1) == held_out[1]).float().mean()}


island = atoll.join({"channels": 16, "batch": 32, "rate": 3e-3, "images": 6000}, steps=120)
settings = island.settings
gpus = torch.cuda.device_count()
device = torch.device("cuda", island.part % gpus) if gpus > 0 else torch.device("cpu")
shapes = Shapes(settings["images"])
loader = island.loader(shapes, batch_size=settings["batch"])
held_out = batch_of(shapes[index] for index in range(len(shapes), len(shapes) + 300))

torch.manual_seed(island.seed)  # the same initial parameters on every island
channels = settings["channels"]
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, channels, 5), torch.nn.BatchNorm2d(channels), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(channels, channels, 3), torch.nn.BatchNorm2d(channels), torch.nn.ReLU(), torch.nn.AdaptiveMaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(4 * channels, KINDS),
).to(device)  # fmt: skip
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
print(f"trains on {device}")
with island.train(model, opt, evaluate=validate, buffers="mean"):  # means and variances are shared as parameters are
    for images, kinds in loader:
        loss = F.cross_entropy(model(images.to(device)), kinds.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)

if island.first:  # one of the islands, once the run is completed
    torch.save(model.state_dict(), "model.pt")
