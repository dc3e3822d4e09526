"""What a PyTorch loop must not get wrong in silence: rates after jumps, what is exchanged, names, what is saved. Tests of own_test.py."""

import contextlib
import io
import tempfile
import warnings


def island_of(resume=None, orders=(), **configuration):
    """An island whose agent gives the orders {step: order} before that step; whose `agent.parameters` are those that it declared."""
    import numpy

    import atoll.torch
    from atoll import _library as library
    from atoll._island import Alone

    class Agent(Alone):
        def __init__(self):
            super().__init__({"training": {"steps": 300}, "resume": resume, **configuration})
            self.orders, self._step = dict(orders), (resume or {}).get("step", 0)

        def declare(self, parameters, description):
            self.parameters, entries, at = parameters, [], 0
            for index, (_, shape, _, _) in enumerate(parameters):
                count = int(numpy.prod(shape, dtype=int))
                entries.append(library.Entry(index, 0, at, count))
                at += count
            return numpy.zeros(at, numpy.float32), entries

        def next(self, timeout_ms):
            order = self.orders.pop(self._step, None) or super().next(timeout_ms)
            self._step = order.step if order.kind == library.STAND_AT else self._step
            return order

        def answer(self, steps=0, samples=0, **rest):
            if samples:
                self._step += 1

    island = atoll.torch.TorchIsland(Agent(), {})
    island.agent = island._trainer
    return island


def optimizer_of(rate=0.1, momentum=0.9):
    import torch

    model = torch.nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), rate, momentum=momentum)


def rates_of(make, island, how, own_steps, save_at=None, restore=None):
    """The rates of the steps that the island does, with the scheduler given as scheduler= or in state=."""
    model, opt = optimizer_of()
    sched = make(opt)
    given = {"scheduler": sched} if how == "scheduler" else {"state": {"deep": [{"sched": sched}]}}
    island.start(model, opt, **given)
    rates = []
    for step in island.steps():
        rates.append((step, round(opt.param_groups[0]["lr"], 9), round(opt.param_groups[0]["momentum"], 9)))
        opt.step()
        if own_steps:
            sched.step()
        if save_at == step:
            island.done(0.0, samples=1)
            island._save(restore)
            return rates
        island.done(0.0, samples=1)
    return rates


class TrueLoops:

    def test_names_are_those_of_the_plain_model(self):
        import torch

        class Own(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.module, self.model, self._orig_mod = (torch.nn.Linear(1, 1) for _ in range(3))

        names = lambda model: [name for name, *_ in self.declared(model)]  # noqa: E731
        plain = [name for name, _ in Own().named_parameters()]
        self.assertEqual(names(Own()), plain)  # its own modules keep their names
        averaged = torch.optim.swa_utils.AveragedModel
        self.assertEqual(names(torch.nn.DataParallel(averaged(Own()))), plain)
        self.assertEqual(names(torch.nn.Sequential(averaged(Own()))), ["0." + name for name in plain])
        if hasattr(torch, "compile"):
            self.assertEqual(names(torch.compile(torch.nn.DataParallel(Own()))), plain)
            self.assertEqual(names(torch.nn.Sequential(torch.compile(Own()))), ["0." + name for name in plain])
            bare = [name for name, _ in torch.nn.BatchNorm1d(2).named_parameters()]
            shared = self.declared(torch.compile(torch.nn.BatchNorm1d(2)), buffers="mean")
            self.assertEqual([name for name, *_ in shared], [*bare, "running_mean", "running_var"])
        peft = type("PeftModel", (torch.nn.Module,), {"__module__": "peft.peft_model"})()
        peft.base_model = type("LoraModel", (type("BaseTuner", (torch.nn.Module,), {"__module__": "peft.tuners.tuners_utils"}),), {})()
        peft.base_model.model = Own()
        self.assertEqual(names(peft), plain)
        peft.module = torch.nn.Linear(1, 1)  # whose name is that of another one inside
        self.assertEqual(len(set(names(peft))), 8)

    def declared(self, model, **how):
        island = island_of()
        island.start(model, **how)
        return island.agent.parameters
