"""The loops that own_test.py runs: `loops.py numpy|torch|exchange|huggingface|lightning|raises|twice`."""

import sys

import numpy


def with_numpy():
    import atoll

    island = atoll.join({"size": 3})
    w, b = numpy.ones(island.settings["size"], numpy.float32), numpy.zeros((2, 2), numpy.float32)
    gradients = {"w": numpy.zeros_like(w), "b": numpy.zeros_like(b)}
    island.start({"w": w, "b": b}, evaluate=lambda: 1.5, gradients=gradients)
    for _ in island.steps():
        gradients["w"][:], gradients["b"][:] = 1, 2
        island.reduce_gradients(0.5, samples=3)
        w -= 0.1 * gradients["w"]
        b -= 0.1 * gradients["b"]
        island.done(0.5, samples=3, accuracy=0.25)


def torch_parts():
    import torch

    import atoll.torch

    island = atoll.torch.join()
    torch.manual_seed(island.seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    return torch, island, model, torch.optim.AdamW(model.parameters(), lr=1e-2), torch.randn(100, 3)


def with_torch():
    torch, island, model, opt, xs = torch_parts()
    inside = torch.nn.parallel.DistributedDataParallel(model) if island.ranks > 1 else model
    sched, data = torch.optim.lr_scheduler.StepLR(opt, 2), island.dataset(xs)
    island.start(inside, opt, state={"sched": sched}, evaluate=lambda: model(xs).pow(2).mean())
    for _ in island.steps():
        batch = torch.stack(data.at(island.position, 6))
        loss = (inside(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        island.reduce_gradients(loss, samples=6)
        opt.step()
        sched.step()
        island.done(loss, samples=6, accuracy=loss)


def with_exchange():
    from atoll._exchange import ExchangeIsland, flatten_plain, rebuild_plain
    from atoll._island import connect

    island = ExchangeIsland(connect(None, None, 1), {}, flatten_plain, rebuild_plain)
    params, state = island.start({"layer": {"w": numpy.ones(3, numpy.float32)}, "b": numpy.zeros(2, numpy.float32)}, 0, evaluate=lambda p: 2.0)
    while island.running:
        params = {"layer": {"w": params["layer"]["w"] - numpy.float32(0.1)}, "b": params["b"] + numpy.float32(1)}
        state += 1
        params = island.exchange(params, 0.5, samples=2, state=state)


class Fake:
    """Whatever attributes a framework's object has."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def one_step(torch, model, opt, xs):
    loss = model(xs[:6]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss


def with_huggingface():
    from atoll.callbacks import HuggingFaceCallback

    torch, island, model, opt, xs = torch_parts()
    callback, control = HuggingFaceCallback(island, samples=6), Fake(should_training_stop=False)
    callback.on_train_begin(None, None, control, model=model, optimizer=opt, lr_scheduler=None)
    while not control.should_training_stop:
        callback.on_log(None, None, control, logs={"loss": one_step(torch, model, opt, xs).item()})
        callback.on_step_end(None, None, control)
    callback.on_train_end(None, None, control)


def with_lightning():
    from atoll.callbacks import LightningCallback

    torch, island, model, opt, xs = torch_parts()
    callback, trainer = LightningCallback(island, samples=6), Fake(optimizers=[opt], should_stop=False)
    callback.on_train_start(trainer, model)
    while not trainer.should_stop:
        callback.on_train_batch_end(trainer, model, {"loss": one_step(torch, model, opt, xs)}, None, 0)
    callback.on_train_end(trainer, model)


def raises():
    import atoll

    island = atoll.join()
    island.prepare("about to fail")
    island.start({"w": numpy.ones(2, numpy.float32)})
    for _ in island.steps():
        raise ValueError("the labels are missing")


def twice():
    import atoll

    island = atoll.join()
    island.start({"w": numpy.ones(2, numpy.float32)})
    for _ in island.steps():
        island.done(1.0)
        try:
            island.done(1.0)
        except RuntimeError as failure:
            island.fail(f"told: {failure}", permanent=True)
            return


LOOPS = dict(
    numpy=with_numpy, torch=with_torch, exchange=with_exchange, huggingface=with_huggingface, lightning=with_lightning, raises=raises, twice=twice
)
if __name__ == "__main__":
    LOOPS[sys.argv[1]]()
