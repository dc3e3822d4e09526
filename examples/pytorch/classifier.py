"""An image classifier with BatchNorm. The islands share its running means and variances as they share its parameters (buffers="mean").

The images are drawn: 16 x 16 pixels with one bar, whose direction is the class.
"""
import atoll.torch as atoll
import torch


class Bars:
    """Any number of images; the same index gives the same image on every island."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        image = 0.3 * torch.randn(1, 16, 16, generator=draw)
        label, at = index % 2, int(torch.randint(2, 14, (1,), generator=draw))
        if label:
            image[:, at] += 1
        else:
            image[:, :, at] += 1
        return image, label


island = atoll.join({"channels": 8, "batch": 16, "rate": 3e-3, "images": 4000}, steps=60)
settings = island.settings
torch.manual_seed(island.seed)
channels = settings["channels"]
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, channels, 3), torch.nn.BatchNorm2d(channels), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(channels, channels, 3), torch.nn.BatchNorm2d(channels), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(), torch.nn.Linear(channels, 2),
)  # fmt: skip
opt = torch.optim.AdamW(model.parameters(), settings["rate"])
bars = Bars(settings["images"])


def validate():
    model.eval()
    images, labels = torch.utils.data.default_collate([bars[index] for index in range(settings["images"], settings["images"] + 64)])
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    model.train()
    return loss


loader = island.loader(bars, batch_size=settings["batch"])
with island.train(model, opt, evaluate=validate, buffers="mean"):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.log(loss=loss)
