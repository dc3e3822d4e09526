"""Programs over island.train(): `train_loops.py follows|gan|reduces|closes|leaves|saves [STEPS FOLDER WORKERS]`. Run by train_test.py."""

import json
import os
import resource
import sys
import time

import torch

import atoll.torch as atoll

SAMPLES = 240


class Rows(torch.utils.data.Dataset):
    """A linear task with noise; a row knows its number."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        row = torch.randn(4, generator=draw)
        return row, row.sum() + 0.01 * torch.randn((), generator=draw), index


def rate_at(step, steps):
    return max(0.02, 1 - step / steps)


def parts(steps, **how):
    island = atoll.join({"workers": 0, "pause": 0.0, "folder": "", "batch": 6}, steps=steps, **how)
    torch.manual_seed(island.seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    opt = torch.optim.AdamW(model.parameters(), 0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: rate_at(step, island.training["steps"]))
    return island, model, opt, sched


def loss_of(model, rows, wanted):
    return (model(rows).squeeze(1) - wanted).pow(2).mean()


def passes_of(island, count):
    """Of the samples of a batch: in which pass over the data each comes."""
    return [island.share.sample(island.position + place) // SAMPLES for place in range(count)]


def held_out(model):
    rows, wanted, _ = zip(*(Rows()[1000 + index] for index in range(64)))
    return loss_of(model, torch.stack(rows), torch.stack(wanted))


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).tolist()


def follows(steps=None, folder=None, workers=None):
    """Writes {step, rate, position, samples} of each batch to FOLDER/ISLAND.steps, and its model at the end to FOLDER/ISLAND.pt."""
    island, model, opt, sched = parts(steps, every=10, folder=os.environ.get("GOES_ON_IN") or (folder and folder + "/kept"))
    settings = island.settings
    folder = settings["folder"] or folder
    loader = island.loader(Rows(), batch_size=settings["batch"], num_workers=int(workers or settings["workers"]))
    with open(f"{folder}/{island.name}.steps", "a", buffering=1) as out:
        with island.train(model, opt, scheduler=sched, evaluate=lambda: held_out(model), average=settings.get("average")):
            for rows, wanted, numbers in loader:
                said = {"step": island.step, "rate": opt.param_groups[0]["lr"], "position": island.position, "samples": numbers.tolist(), "passes": passes_of(island, len(numbers))}
                if island.average:
                    said.update(flat=flat(model.parameters()), average=flat(island.average.values()))
                out.write(json.dumps(said) + "\n")
                loss = loss_of(model, rows, wanted)
                island.log(loss=loss, doubled=2 * loss)
                loss.backward()
                opt.step()
                sched.step()
                opt.zero_grad()
                time.sleep(settings["pause"])
                gate = settings.get("gates", {}).get(str(island.step))  # of the first island: until the test has seen what it waits for
                while gate and island.name == "a" and not os.path.exists(f"{folder}/{gate}"):
                    time.sleep(0.05)
                if island.step == settings.get("save_at"):
                    island.save(f"{folder}/kept")
                if os.environ.get("DIES_AT") == str(island.step):
                    os._exit(9)
    with torch.no_grad():
        kept = {"model": model.state_dict(), "step": island.step, "complete": island.complete, "first": island.first, "loss": float(held_out(model)), "average": island.average}
    torch.save(kept, f"{folder}/{island.name}.pt")


def gan():
    """Two models and two optimisers, which both step on each batch; the first one steps three times as often with `critic`."""
    island, generator, opt, _ = parts(40)
    critic = torch.nn.Linear(1, 1)
    second = torch.optim.SGD(critic.parameters(), 0.01)
    loader = island.loader(Rows(), batch_size=6)
    with island.train({"generator": generator, "critic": critic}, [opt, second]):
        for rows, _, _ in loader:
            made = generator(rows)
            critic(made.detach()).mean().backward()
            second.step()
            second.zero_grad()
            loss = -critic(made).mean() + made.pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            island.log(loss=loss)


def reduces():
    """A gradient of one is exchanged before the step; the loss is said after it."""
    island, _, _, _ = parts(40)
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    with island.train(model, opt):
        for batch in island.batches(([1.0, 1.0] for _ in range(1000)), samples=3):
            model(torch.tensor(batch)).sum().backward()
            opt.step()
            opt.zero_grad()
            island.log(loss=0.5)


def closes():
    """Its gradients are computed inside of the optimiser's step."""
    island, model, opt, _ = parts(40)
    with island.train(model, opt):
        for batch in island.batches((torch.ones(2, 4) for _ in range(1000)), samples=2):
            opt.step(lambda: model(batch).sum().backward())


def leaves():
    """A loop over data that end before the run."""
    island, model, opt, _ = parts(40)
    with island.train(model, opt):
        for _ in island.batches(range(3), samples=2):
            opt.step()


def saves(steps, folder, kind, dcp, gone_on=""):
    """Rank 0 prints a line of each step and the model before it. With a folder it saves itself there after step 6, as `dcp` says. kind: sharded; noise: one rank."""
    island, model, opt, _ = parts(steps, folder=gone_on or None)
    if kind == "sharded":
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/pytorch"))
        import cpu_streams  # noqa: F401
        from torch.distributed._composable.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh

        for part in (model[0], model[2], model):
            fully_shard(part, mesh=init_device_mesh("cpu", (island.ranks,)))
        opt = torch.optim.AdamW(model.parameters(), 0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: rate_at(step, 12))
    inside = torch.nn.parallel.DistributedDataParallel(model) if island.ranks > 1 and kind != "sharded" else model
    kept, opts = {"count": 0}, [opt]
    with island.train(inside, opts, scheduler=sched, state=kept):
        for rows, wanted, _ in island.loader(Rows(), batch_size=6 // island.ranks):
            weights = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in (each.detach() for each in model.parameters())]
            if island.rank == 0:
                print(json.dumps([[island.step, island.position, opt.param_groups[0]["lr"], kept["count"]], flat(weights)]), flush=True)
            loss = loss_of(inside, rows + 0.1 * torch.randn(4) * (kind == "noise"), wanted)
            loss.backward()
            opt.step()
            opt.zero_grad()
            kept["count"] += 1
            if folder and island.step in (5, int(os.environ.get("FULL_AT", "5"))):
                if os.environ.get("FULL_AT") == str(island.step):  # no file takes more bytes than these
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
                island.save(folder, dcp={"yes": True, "no": False, "none": None}[dcp])
            if os.environ.get("DIES_AT") == str(island.step):
                os._exit(9)


if __name__ == "__main__":
    {"saves": saves, "leaves": leaves, "follows": follows, "gan": gan, "reduces": reduces, "closes": closes}[sys.argv[1]](*[int(word) if word.isdecimal() else word for word in sys.argv[2:]])
