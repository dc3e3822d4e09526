"""The loops that own_test.py runs: `loops.py numpy|torch|norm|fsdp|exchange|huggingface|accelerate|lightning|raises|twice|begins|enough|until_good|ends_groups|leaves_out|rates|numbers|copies|ends|bad_batch|slow|alone`."""

import os
import sys

import numpy


def with_numpy():
    import atoll

    island = atoll.join({"size": 3})
    w, b = numpy.ones(island.settings["size"], numpy.float32), numpy.zeros((2, 2), numpy.float32)
    gradients = {"w": numpy.zeros_like(w), "b": numpy.zeros_like(b)}
    island.start({"w": w, "b": b}, evaluate=lambda: (1.5, {"perplexity": 4.5}), gradients=gradients)
    for _ in island.steps():
        gradients["w"][:], gradients["b"][:] = 1, 2
        island.reduce_gradients(0.5, samples=3)
        w -= 0.1 * gradients["w"]
        b -= 0.1 * gradients["b"]
        island.done(0.5, samples=3, accuracy=0.25)


def with_numbers():
    """Parameters without dimensions, in NumPy's arrays."""
    import atoll

    island = atoll.join()
    w, scale = numpy.ones(3), numpy.array(2.0)
    island.start({"scale": scale, "w": w})
    for _ in island.steps():
        w -= 0.125
        scale[...] -= 0.25
        island.done(0.5, samples=3)


def copies():
    """Steps whose results go to a copy, and one late one that is its own: what was declared stays as it was."""
    import atoll

    island = atoll.join()
    w = numpy.ones(3, numpy.float32)
    island.start({"w": w})
    mine = w.copy()
    for step in island.steps():
        mine -= 0.125
        if step >= island.settings["late"]:
            w -= 0.125
        island.done(0.5, samples=3)


def leaves_out():
    """Steps whose gradients are infinite, and are left out, as a GradScaler does."""
    torch, island, model, opt, _ = torch_parts()
    island.start(model, opt)
    for _ in island.steps():
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, float("inf"))
        island.done(0.5, samples=3)


def rates():
    """Writes "STEP RATE ." of each step to FOLDER/ISLAND.rates. The scheduler counts its steps by itself, and the loop does not step it."""
    import time

    torch, island, model, opt, xs = torch_parts()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 - step / island.training["steps"])
    island.start(model, opt, scheduler=sched)
    with open(f"{island.settings['folder']}/{island.name}.rates", "a", buffering=1) as out:
        for step in island.steps():
            loss = one_step(torch, model, opt, xs)
            out.write(f"{step} {opt.param_groups[0]['lr']:.12f} .\n")
            time.sleep(island.settings[island.name])
            island.done(loss, samples=6)


def ends():
    """After the loop: FOLDER/ISLAND.pt, with the model, later than a program that is cut off could write it. Its beginning and its end stand in
    FOLDER/turns."""
    import time

    torch, island, model, opt, xs = torch_parts()
    data, folder = island.dataset(xs), island.settings["folder"]
    inside = torch.nn.parallel.DistributedDataParallel(model) if island.ranks > 1 else model

    def turn(what):
        with open(folder + "/turns", "a") as out:
            out.write(f"{island.name} {island.settings['run']} {what}\n")

    island.start(inside, opt)
    turn("starts")
    for step in island.steps():
        batch = torch.stack(data.at(island.position, 6))
        loss = (inside(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        island.reduce_gradients(loss, samples=6)
        opt.step()
        if step == island.settings.get("enough_at"):
            island.enough("it is enough")
        island.done(loss, samples=6)
    if island.rank > 0:
        return
    time.sleep(island.settings["tail"])
    kept = {"model": model.state_dict(), "step": island.step, "complete": island.complete, "first": island.first}
    torch.save(kept, f"{folder}/{island.name}.{island.settings['run']}.pt")
    turn("ends")


def bad_batch():
    """One batch of the first island is not a number, once, or a parameter after it. After the loop FOLDER/ISLAND says whether the optimiser's state is finite."""
    torch, island, model, opt, xs = torch_parts()
    data, folder = island.dataset(xs), island.settings["folder"]
    inside = torch.nn.parallel.DistributedDataParallel(model) if island.ranks > 1 else model
    island.start(inside, opt)
    for step in island.steps():
        batch = torch.stack(data.at(island.position, 6))
        bad = island.part == 0 and step == island.settings["bad"] and not os.path.exists(folder + "/was_bad")
        bad = bad and island.rank == island.settings.get("rank", 0)
        if bad:
            open(folder + "/was_bad", "w").close()
            batch = batch * (float("nan") if island.settings["what"] == "batch" else 1)
        loss = (inside(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        island.reduce_gradients(loss, samples=6)
        opt.step()
        if bad and island.settings["what"] == "parameters":
            torch.nn.init.constant_(model[0].bias, float("inf"))
        island.done(loss, samples=6)
    kept = [value for state in opt.state.values() for value in state.values()]
    with open(f"{folder}/{island.name}" + (f".{island.rank}" if island.rank else ""), "w") as out:
        out.write(f"{len(kept)} {all(bool(torch.as_tensor(value).isfinite().all()) for value in kept)}")


def slow():
    """A first step and evaluations that take longer than an agent's patience with silence."""
    import time

    import atoll

    island = atoll.join()
    w = numpy.ones(3)
    island.start({"w": w}, evaluate=lambda: time.sleep(island.settings["seconds"]) or 1.5)
    for step in island.steps():
        time.sleep(island.settings["seconds"] if step == 0 or step == island.settings["hangs"] else 0.01)
        w *= 0.99
        island.done(0.5, samples=3)


def torch_parts(**how):
    import torch

    import atoll.torch

    island = atoll.torch.join(**how)
    torch.manual_seed(island.seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    xs = torch.randn(100, 3)
    if os.environ.get("LATE_GPU"):
        import late_gpu

        late_gpu.begin(os.environ["LATE_GPU"], island, *model.parameters(), xs)
    return torch, island, model, torch.optim.AdamW(model.parameters(), lr=1e-2), xs


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


def with_norm():
    """A BatchNorm alone, on batches whose mean is twice the island's part and one."""
    torch, island, _, _, _ = torch_parts()
    model = torch.nn.BatchNorm1d(2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    island.start(model, opt, buffers=island.settings["buffers"])
    middle = 2.0 * island.part + 1
    for _ in island.steps():
        loss = (model(torch.tensor([[middle - 1] * 2, [middle + 1] * 2])) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        island.done(loss, samples=2)


def with_fsdp():
    """The same as with_torch, with the model sharded; its last layer has fewer rows than some ranks would need."""
    if int(os.environ["RANK"]) > 0:
        os.environ["ATOLL_MACHINE"] = os.environ.get("OTHERS_ARE_AT", "")
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/pytorch"))
    import cpu_streams  # noqa: F401

    torch, island, model, opt, xs = torch_parts()
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    how = {"mesh": init_device_mesh("cpu", (island.ranks,)), "reshard_after_forward": False}
    for part in (model[0], model[2], model):
        fully_shard(part, **how)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sched, data = torch.optim.lr_scheduler.StepLR(opt, 2), island.dataset(xs)
    island.start(model, opt, state={"sched": sched}, evaluate=lambda: model(xs).pow(2).mean())
    for _ in island.steps():
        batch = torch.stack(data.at(island.position, 6))
        loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        norm = torch.stack([parameter.grad.full_tensor().norm() for parameter in model.parameters()]).norm()
        opt.step()
        sched.step()
        with torch.no_grad():
            model(xs)  # leaves the parameters gathered
        island.done(loss, samples=6, **{f"norm_{island.step}": norm})


def alone():
    """`alone numpy|exchange|torch STEPS [FOLDER]`, without an agent: prints its parameters at the end."""
    import atoll
    from atoll._exchange import ExchangeIsland, flatten_plain, rebuild_plain
    from atoll._join import connect

    how = {"steps": int(sys.argv[3]), "folder": sys.argv[4] if len(sys.argv) > 4 else None, "every": 5}
    if sys.argv[2] == "torch":
        torch, island, model, opt, xs = torch_parts(**how)
        inside = torch.nn.parallel.DistributedDataParallel(model) if island.ranks > 1 else model
        sched, data = torch.optim.lr_scheduler.StepLR(opt, 3), island.dataset(xs)
        island.start(inside, opt, scheduler=sched, evaluate=lambda: model(xs).pow(2).mean())
        for _ in island.steps():
            batch = torch.stack(data.at(island.position, 6)) + torch.randn(3)
            loss = (inside(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            island.done(loss, samples=6)
        if island.rank == 0:
            print([parameter.tolist() for parameter in model.parameters()])
    elif sys.argv[2] == "exchange":
        island = ExchangeIsland(connect(None, None, 1, **how), {}, flatten_plain, rebuild_plain)
        params, speed = island.start({"w": numpy.ones(3), "b": numpy.zeros(2)}, 1.0, evaluate=lambda params: params["w"].mean())
        while island.running:
            speed *= 1.01
            params = {"w": params["w"] * 0.9 - speed * island.position, "b": params["b"] + speed}
            params = island.exchange(params, 0.5, samples=2, state=speed)
        print([array.tolist() for array in params.values()])
    else:
        island, w, kept = atoll.join(**how), numpy.ones(3), {"speed": 0.0}
        island.start({"w": w}, kept, evaluate=lambda: w.mean())
        for step in island.steps():
            kept["speed"] = 0.5 * kept["speed"] + numpy.random.default_rng((island.seed, island.sample)).normal()
            w += kept["speed"] * numpy.arange(3)
            island.done(0.5, samples=3)
        print(w.tolist())


def with_exchange():
    from atoll._exchange import ExchangeIsland, flatten_plain, rebuild_plain
    from atoll._join import connect

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
    callback, control = HuggingFaceCallback(island, samples=6, data="own"), Fake(should_training_stop=False)
    callback.on_train_begin(None, None, control, model=model, optimizer=opt, lr_scheduler=None)
    while not control.should_training_stop:
        one_step(torch, model, opt, xs)
        callback.on_step_end(None, None, control)
    callback.on_train_end(None, None, control)


def with_lightning():
    from atoll.callbacks import LightningCallback

    torch, island, model, opt, xs = torch_parts()
    callback, trainer = LightningCallback(island, samples=6, data="own"), Fake(optimizers=[opt], should_stop=False)
    callback.on_train_start(trainer, model)
    while not trainer.should_stop:
        callback.on_train_batch_end(trainer, model, {"loss": one_step(torch, model, opt, xs)}, None, 0)
    callback.on_train_end(trainer, model)


def enough():
    import atoll

    island = atoll.join()
    island.start({"w": numpy.ones(2, numpy.float32)})
    for step in island.steps():
        if step == 2:
            island.enough("accuracy 0.9 after step 2")
        island.done(1.0, samples=1, **{f"number_{i}": i for i in range(33 if step == 4 else 32)})


def with_accelerate():
    """What accelerator.prepare() returns in one process: the model itself, and an optimizer in a wrapper of its own."""
    torch, island, model, opt, xs = torch_parts()

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            self.optimizer = inner

        def __getattribute__(self, name):
            inner = object.__getattribute__(self, "__dict__").get("optimizer")
            return getattr(inner, name) if inner is not None and name != "optimizer" else object.__getattribute__(self, name)

    accelerator = Fake(prepare=lambda model, opt: (model, Wrapper(opt)), backward=lambda loss: loss.backward())
    model, opt = accelerator.prepare(model, opt)
    island.start(model, opt)
    for _ in island.steps():
        loss = model(xs[:6]).pow(2).mean()
        opt.zero_grad()
        accelerator.backward(loss)
        opt.step()
        island.done(loss, samples=6)


def until_good():
    """Ends the run for all once its accuracy is good; each island measures another."""
    import time

    import atoll

    island = atoll.join()
    w = numpy.ones((5, 3), numpy.float32)
    island.start({"w": w})
    for step in island.steps():
        w *= numpy.float32(0.99)
        time.sleep(0.05)  # so that each island has said at least once how it stands
        if island.part == 1 and step == 45:
            island.enough("accuracy 0.75")
        island.done(1.0, samples=2, accuracy=0.25 + 0.5 * island.part)


def raises():
    import atoll

    island = atoll.join()
    island.prepare("about to fail")
    island.start({"w": numpy.ones(2, numpy.float32)})
    for _ in island.steps():
        raise ValueError("the labels are missing\nand this is how they are made")


def twice():
    import atoll

    island = atoll.join()
    island.start({"w": numpy.ones(2, numpy.float32)})
    for _ in island.steps():
        told = []
        for again in (lambda: island._trainer.next(0), lambda: island.done(1.0, samples=1), lambda: island._trainer.answer(), lambda: island.done(1.0, samples=1)):
            try:
                again()
            except RuntimeError as failure:
                told.append(str(failure))
        island.fail("told: " + "; ".join(told), permanent=True)
        return


def begins():
    """Orders that begin, go on beside the steps and end, by the library alone."""
    from atoll import _library as library

    trainer = library.Trainer(None, "begins", "1", 1)
    arena, _ = trainer.declare([("w", (2,), 0, 0)], None)
    trainer.ready(0)
    told = []

    def refused(**answer):
        try:
            trainer.answer(**answer)
        except library.LinkError as failure:
            told.append(str(failure))

    def due(kind):
        order = trainer.next(60_000)
        while order.kind == library.NONE != kind:
            order = trainer.next(0)
        assert order.kind == kind, (order, kind)
        return order

    due(library.STEP)
    refused(answered=library.BEGUN)
    refused(answered=library.ENDED)
    trainer.answer(samples=1)
    due(library.WRITE)
    trainer.answer(answered=library.BEGUN)
    refused()
    due(library.REPORT)
    trainer.answer(answered=library.BEGUN)
    due(library.STEP)
    arena[:] = 7
    trainer.answer(answered=library.ENDED)
    trainer.answer(losses=[0.5], norm=2.0, metrics={"accuracy": 0.25}, answered=library.ENDED)
    refused(answered=library.ENDED)
    trainer.answer(samples=1)
    due(library.FETCH)
    trainer.answer(answered=library.BEGUN)
    due(library.STEP)
    trainer.answer(samples=1)
    assert due(library.MERGE).fetched
    trainer.answer(answered=library.BEGUN)
    due(library.NONE)
    told.append("nothing can be done")
    trainer.answer(answered=library.ENDED)
    trainer.answer(answered=library.ENDED)
    trainer.fail("told: " + "; ".join(told), True)
    trainer.leave()


def ends_groups():
    """Groups end right behind a collective, whose threads are then letting go of its tensors."""
    import torch.distributed as distributed

    import atoll.torch

    for _ in range(30):
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        talk = [distributed.new_group(backend="gloo")]
        for _ in range(3):
            distributed.broadcast_object_list([{"a": 1}], 0, group=talk[0])
            distributed.broadcast(atoll.torch.torch.zeros(5), 0, group=talk[0])
        distributed.broadcast(atoll.torch.torch.zeros(500), 0)
        atoll._ranks.end_process_groups(talk)
    print("ended")


LOOPS = dict(
    numpy=with_numpy, torch=with_torch, norm=with_norm, fsdp=with_fsdp, exchange=with_exchange,
    huggingface=with_huggingface, accelerate=with_accelerate, lightning=with_lightning, raises=raises, twice=twice, begins=begins, enough=enough, until_good=until_good,
    ends_groups=ends_groups, leaves_out=leaves_out, rates=rates, numbers=with_numbers, copies=copies, ends=ends, bad_batch=bad_batch, slow=slow, alone=alone,
)
if __name__ == "__main__":
    LOOPS[sys.argv[1]]()
