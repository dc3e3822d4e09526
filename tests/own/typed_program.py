"""A user's program, as types_test.py checks it in strict mode; it is not run."""

import torch

import atoll.torch as atoll
from atoll import loggers


def validate() -> float:
    return 0.0


def rate(step: int) -> float:
    return 1.0


island = atoll.join({"rate": 0.1}, steps=10)
model = torch.nn.Linear(2, 1)
print(island.load(model, "model.safetensors", strict=False).missing)
print(island.base(torch.nn.Linear(2, 1), "base.safetensors", digest=None))
opt = torch.optim.SGD(model.parameters(), float(island.settings["rate"]))
loggers.wandb(island, project="line", tags=["typed"])
sched = torch.optim.lr_scheduler.LambdaLR(opt, rate)
loader = island.loader([torch.ones(2), torch.zeros(2)], batch_size=1, num_workers=0)
with island.train(model, opt, scheduler=sched, evaluate=validate, average=0.999):
    for batch in loader:
        loss: torch.Tensor = model(batch).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch's own, as the next
        opt.step()  # pyright: ignore[reportUnknownMemberType]
        sched.step()
        opt.zero_grad()
        island.log(loss=loss, epoch=loader.epoch)
        if island.step % 100 == 99:
            island.save("keep", dcp=True)
if island.first and island.rank == 0:
    torch.save(island.average, f"{island.name}-{island.step + 1}.pt")
