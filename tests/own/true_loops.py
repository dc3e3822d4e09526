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
    from atoll import Alone

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
            ahead = min((step for step in self.orders if step > self._step), default=order.free_until)
            return order._replace(free_until=min(order.free_until, ahead))

        def answer(self, steps=0, samples=0, **rest):
            if samples:
                self._step += max(steps, 1)

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
    def schedulers(self):
        from torch.optim import lr_scheduler as of

        return {
            "lambda": lambda opt: of.LambdaLR(opt, lambda step: 1 - step / 300),
            "cosine": lambda opt: of.CosineAnnealingLR(opt, 300),
            "one cycle": lambda opt: of.OneCycleLR(opt, 0.1, total_steps=301),
            "sequential": lambda opt: of.SequentialLR(opt, [of.LinearLR(opt, 0.1, total_iters=20), of.StepLR(opt, 40)], [20]),
            "chained": lambda opt: of.ChainedScheduler([of.ConstantLR(opt, 0.1, 30), of.ExponentialLR(opt, 0.99)]),
            "restarts": lambda opt: of.CosineAnnealingWarmRestarts(opt, 70),
        }

    def test_the_learning_rate_is_that_of_the_run_s_step_whatever_jumps(self):
        from atoll import _library as library

        stand = {120: library.Order(library.STAND_AT, step=150, position=150), 200: library.Order(library.STAND_AT, step=190, position=190)}
        warnings.simplefilter("ignore")
        for name, make in self.schedulers().items():
            whole = dict((step, rest) for step, *rest in rates_of(make, island_of(), "scheduler", False))
            self.assertEqual(len(whole), 300)
            for how, own in (("scheduler", False), ("scheduler", True), ("state", True)):
                with self.subTest(name, how=how, own=own), tempfile.TemporaryDirectory() as folder:
                    runs = [rates_of(make, island_of({"step": 50, "position": 50}), how, own)]  # joins late
                    runs.append(rates_of(make, island_of(orders=stand), how, own))  # leaves out steps, and goes back
                    rates_of(make, island_of(), how, own, save_at=99, restore=folder)
                    runs.append(rates_of(make, island_of({"step": 260, "position": 260, "directory": folder}), how, own))
                    runs.append(rates_of(make, island_of({"step": 80, "position": 80, "directory": folder}), how, own))
                    for run in runs:
                        self.assertEqual([rest for _, *rest in run], [whole[step] for step, *_ in run])
                    self.assertEqual([len(run) for run in runs], [250, 280, 40, 220])

    def test_a_scheduler_that_the_loop_steps_in_some_steps_alone_is_refused(self):
        """One that counts epochs would fall as often as there are steps, one behind a warm-up of the program's own would begin too early."""
        from torch.optim import lr_scheduler as of

        from atoll._island import Refused

        def done(steps, fused=False, resume=None):
            model, opt = optimizer_of()
            opt.param_groups[0]["fused"] = fused
            sched = of.StepLR(opt, 30)
            island = island_of(resume, orders={200: library.Order(library.STAND_AT, step=230, position=230)})
            island.start(model, opt, scheduler=sched)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for step in island.steps():
                    if steps(step):
                        sched.step()
                    island.done(0.0, samples=1)
            return island.step

        from atoll import _library as library

        for steps in (lambda step: True, lambda step: False, lambda step: step % 4, lambda step: step not in (100, 101, 102), lambda step: step < 299):
            self.assertEqual(done(steps), 300)
        for once_an_epoch in (lambda step: step % 60 == 59, lambda step: step % 5 == 4):
            with self.assertRaisesRegex(Refused, "scheduler\\[0\\] is stepped by the loop in some steps and not in (59|4) in a row: .* counts epochs"):
                done(once_an_epoch)
            self.assertEqual(done(once_an_epoch, fused=True), 300)
        for steps, resume in ((lambda step: step >= 20, None), (lambda step: step < 100, None), (lambda step: step >= 120, {"step": 50, "position": 50})):
            with self.assertRaisesRegex(Refused, "begins or ends in the middle"):
                done(steps, resume=resume)

    def told(self, island, state, scheduler=None, steps=3):
        model, opt = optimizer_of()
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            island.start(model, opt, state=state(model, opt) if callable(state) else state, scheduler=scheduler(opt) if scheduler else None)
            for step in island.steps():
                island.done(0.0, samples=1)
                if step > 50 + steps:
                    break
        return said.getvalue()

    def test_what_counts_by_itself_is_named_after_a_jump(self):
        import torch

        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        joins = {"step": 50, "position": 50}
        self.assertIn("state['sched'] (it goes by the loss)", self.told(island_of(joins), lambda _, opt: {"sched": plateau(opt)}))
        self.assertIn("scheduler[0] (it goes by the loss)", self.told(island_of(joins), None, scheduler=plateau))
        said = self.told(island_of(joins), lambda model, _: {"ema": torch.optim.swa_utils.AveragedModel(model), "seen": 3, "second": optimizer_of()[1], "scaler": torch.cuda.amp.GradScaler(enabled=False)})
        self.assertIn("goes on at step 50", said)
        self.assertIn("state['ema'], state['seen'] cannot be moved", said)
        self.assertEqual(self.told(island_of(), {"seen": 3}), "")
        self.assertEqual(self.told(island_of(joins), None), "")

    def test_what_changed_since_it_was_declared_is_taken_or_refused_by_name(self):
        import torch

        from atoll import _library as library
        from atoll._island import Refused

        write = library.Order(library.WRITE)

        def begun(**how):
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
            model[1].requires_grad_(False)
            opt = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], 0.1)
            island = island_of()
            island.start(model, opt, **how)
            island._carry_out(write)
            island._stand()
            return model, opt, island

        model, opt, island = begun()
        model[1].requires_grad_(True)
        opt.add_param_group({"params": model[1].parameters()})
        with self.assertRaisesRegex(Refused, "'1.weight' requires a gradient now"):
            island._carry_out(write)
        model, _, island = begun(synchronise=lambda name, _: name.startswith("0."))
        model[1].requires_grad_(True)
        island._carry_out(write)  # which the program chose not to share
        model, _, island = begun()
        del model[0].bias
        with self.assertRaisesRegex(Refused, "'0.bias' was declared by island.start\\(\\), and the model has it no more"):
            island._carry_out(write)
        model, _, island = begun()
        model[0].weight.data = torch.ones(3, 2)
        with self.assertRaisesRegex(Refused, "'0.weight' was declared with shape \\(2, 2\\), and has \\(3, 2\\) now"):
            island._carry_out(write)
        model, opt, island = begun()
        model[0].weight = torch.nn.Parameter(torch.full((2, 2), 7.0))
        with self.assertRaisesRegex(Refused, "optimizer 0 trains a parameter of shape \\(2, 2\\) that the model lacks"):
            island._carry_out(write)
        model, opt, island = begun()
        model[0].weight = torch.nn.Parameter(torch.full((2, 2), 7.0))
        opt.param_groups[0]["params"][0] = model[0].weight
        island._carry_out(write)
        self.assertEqual(island._arena[:4].tolist(), [7] * 4)
        model[0].weight.data = torch.full((2, 2), 8.0)
        island._stand()
        island._carry_out(write)
        self.assertEqual(island._arena[:4].tolist(), [8] * 4)

    def test_what_is_not_shared_and_is_trained_is_refused_by_name(self):
        """A GAN's discriminator that is frozen between two batches, a teacher that follows its student: of each island another, and in no export."""
        import torch

        from atoll import _library as library
        from atoll._island import Refused

        def step(island):
            island._carry_out(library.Order(library.WRITE))
            island._stand()

        def begun(**how):
            model = torch.nn.ModuleDict({"net": torch.nn.Linear(2, 2), "teacher": torch.nn.Linear(2, 2)})
            model["teacher"].requires_grad_(False)
            island = island_of()
            island.start(model, torch.optim.SGD(model["net"].parameters(), 0.1), **how)
            step(island)
            return model["teacher"], island

        teacher, island = begun()
        for _ in range(9):
            step(island)  # which stays as it was
        teacher.weight.data = teacher.weight.data * 0.99 + 0.01
        with self.assertRaisesRegex(Refused, "'teacher.weight' is not shared, for it required no gradient .* its values have changed since"):
            for _ in range(9):
                step(island)
        for how, shared in (({"synchronise": lambda name, _: True}, 12), ({"synchronise": lambda name, _: name.startswith("net")}, 6)):
            teacher, island = begun(**how)  # a choice of the program's own
            self.assertEqual(island._arena.size, shared)
            teacher.weight.data.mul_(0.5)
            step(island)
        teacher, island = begun()
        teacher.half()  # the same values
        step(island)

    def test_an_optimiser_that_writes_parameters_from_a_copy_of_its_own_is_refused(self):
        """Otherwise each result is gone with the next step, and the islands train for themselves."""
        import torch

        from atoll import _library as library
        from atoll._island import Refused

        class Wide(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure=None):
                for one in self.param_groups[0]["params"]:
                    wide = self.state[one].setdefault("wide", one.detach().float().clone())
                    one.copy_(wide.sub_(one.grad.float(), alpha=0.1))

        class ScheduleFree(torch.optim.SGD):
            """The parameters are drawn to `z`, which steps beside them."""

            @torch.no_grad()
            def step(self, closure=None):
                for one in self.param_groups[0]["params"]:
                    state = self.state[one]
                    z, steps = state.setdefault("z", one.detach().clone()), state.get("steps", 0) + 1
                    one.lerp_(z, 1 / steps).sub_(one.grad, alpha=0.001)
                    z.sub_(one.grad, alpha=0.01)
                    state["steps"] = steps

        class FromBegin(torch.optim.SGD):
            """Measures how far it has come, as Prodigy and D-Adaptation do, and draws nothing back."""

            @torch.no_grad()
            def step(self, closure=None):
                for one in self.param_groups[0]["params"]:
                    self.state[one].setdefault("p0", one.detach().clone())
                super().step()

        def trained(of, dtype=torch.float32, width=3, half_square=False):
            torch.manual_seed(1)
            model = torch.nn.Linear(width, 2).to(dtype)
            opt, island = of(model.parameters()), island_of(training={"steps": 40})
            island.start(model, opt)
            for _ in island.steps():
                opt.zero_grad()
                loss = sum(one.pow(2).sum() / 2 for one in model.parameters()) if half_square else model(torch.ones(4, width, dtype=dtype)).pow(2).mean()
                loss.backward()
                opt.step()
                island.done(0.0, samples=1)

        warnings.simplefilter("ignore")
        with self.assertRaisesRegex(Refused, "optimizer 0 keeps a copy of parameter '(weight|bias)' in its state \\('wide'\\)"):
            trained(lambda parameters: Wide(parameters, 0.1), torch.bfloat16)
        with self.assertRaisesRegex(Refused, "optimizer 0 keeps positions of its own beside the parameters \\('z' in its state\\)"):
            trained(lambda parameters: ScheduleFree(parameters, 0.1), width=30)
        trained(lambda parameters: FromBegin(parameters, 0.01), width=30)
        trained(lambda parameters: torch.optim.ASGD(parameters, 0.01, t0=0), width=30)
        trained(lambda parameters: torch.optim.Adam(parameters, 0.1), torch.bfloat16)
        trained(lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9), width=30, half_square=True)  # whose momentum begins as the parameters

    def test_two_over_the_same_memory_are_refused_by_name(self):
        import torch

        from atoll._island import Refused

        def started(**parameters):
            model = torch.nn.ParameterDict({name: torch.nn.Parameter(values) for name, values in parameters.items()})
            island_of().start(model, torch.optim.SGD(model.parameters(), 0.1))

        whole = torch.zeros(4, 6)
        for one, two in ((whole, whole), (whole[:2], whole[1:]), (whole[:, :4], whole[:, 3:]), (whole.t(), whole[3:, 5:])):
            with self.assertRaisesRegex(Refused, "parameters 'a' and 'b' lie over the same memory"):
                started(a=one, b=two)
        started(a=whole[:2], b=whole[2:])
        started(a=whole[:, :3], b=whole[:, 3:], c=torch.zeros(()), d=torch.zeros(()))
        with self.assertRaisesRegex(Refused, "parameter 'a' is expanded"):
            started(a=torch.zeros(1).expand(5))
        lazy = torch.nn.Sequential(torch.nn.LazyLinear(3))
        with self.assertRaisesRegex(Refused, "parameter '0.weight' has no shape yet"):
            island_of().start(lazy, torch.optim.SGD(lazy.parameters(), 0.1))

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
        self.assertEqual(names([Own(), Own()]), [f"{number}.{name}" for number in (0, 1) for name in plain])
        self.assertEqual(names({"left": Own()}), ["left." + name for name in plain])

    def declared(self, model, **how):
        island = island_of()
        island.start(model, **how)
        return island.agent.parameters

    def test_state_is_checked_at_the_start_and_comes_back(self):
        import random

        import numpy
        import torch

        def state():
            models = [optimizer_of() for _ in range(2)]
            return {
                "epoch": 1, "nested": {"best": [0.5, None, "x"]}, "models": [model for model, _ in models], "opts": tuple(opt for _, opt in models),
                "torch": torch.Generator(), "numpy": numpy.random.default_rng(3), "old": numpy.random.RandomState(3), "python": random.Random(3),
                "tensor": torch.zeros(2), "array": numpy.zeros(2),
                "ema": torch.optim.swa_utils.AveragedModel(models[0][0]),
            }  # fmt: skip

        with tempfile.TemporaryDirectory() as folder:
            (model, opt), kept, island = optimizer_of(), state(), island_of()
            island.start(model, opt, state=kept)
            kept["epoch"], kept["nested"]["best"][0] = 4, 0.25
            kept["tensor"] += 2
            kept["array"] += 3
            kept["opts"][1].param_groups[0]["lr"] = 0.7
            island._save(folder)
            drawn = [torch.rand(1, generator=kept["torch"]).item(), kept["numpy"].random(), kept["old"].rand(), kept["python"].random()]
            back, (model, opt) = state(), optimizer_of()
            island = island_of({"step": 0, "position": 0, "directory": folder})
            island.start(model, opt, state=back)
            self.assertEqual((island.state["epoch"], back["nested"]["best"]), (4, [0.25, None, "x"]))
            self.assertEqual((back["tensor"].tolist(), back["array"].tolist()), ([2, 2], [3, 3]))
            self.assertEqual(back["opts"][1].param_groups[0]["lr"], 0.7)
            self.assertEqual(back["models"][1].weight.tolist(), kept["models"][1].weight.tolist())
            self.assertEqual([torch.rand(1, generator=back["torch"]).item(), back["numpy"].random(), back["old"].rand(), back["python"].random()], drawn)
            with self.assertRaisesRegex(ValueError, r"the checkpoint has no state\['more'\]"):
                island_of({"step": 0, "position": 0, "directory": folder}).start(model, opt, state={**state(), "more": 1})
        for bad, why in (
            ({"a": [object()]}, r"state\['a'\]\[0\] is of type object"),
            ({"a": (1,)}, r"state\['a'\]\[0\] is a plain value in a tuple"),
            ({"a": lambda: 1}, "of type function"),
            ({"a": torch.nn.Linear}, r"state\['a'\] is of type type"),
        ):
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                island_of().start(*optimizer_of(), state=bad)

    def test_dicts_and_lists_that_grow_and_shrink_come_back_as_they_were(self):
        from collections import deque

        import torch

        state = lambda: {"history": [], "recent": deque(maxlen=3), "todo": [1, 2, 3], "seen": {}, "models": [torch.nn.Linear(1, 1)]}  # noqa: E731
        with tempfile.TemporaryDirectory() as folder:
            (model, opt), kept, island = optimizer_of(), state(), island_of()
            island.start(model, opt, state=kept)
            for step in range(5):
                kept["history"].append([step, 0.5])
                kept["recent"].append(step)
                kept["seen"][step] = torch.tensor(step)
            kept["todo"].pop()
            island._save(folder)
            back = state()
            island_of({"step": 0, "position": 0, "directory": folder}).start(*optimizer_of(), state=back)
            self.assertEqual((back["history"], list(back["recent"]), back["todo"]), ([[step, 0.5] for step in range(5)], [2, 3, 4], [1, 2]))
            self.assertEqual((back["recent"].maxlen, back["seen"]), (3, {step: torch.tensor(step) for step in range(5)}))
            kept["models"].append(torch.nn.Linear(1, 1))
            island._save(folder)
            with self.assertRaisesRegex(ValueError, r"the checkpoint has state\['models'\]\[1\], and this program has not"):
                island_of({"step": 0, "position": 0, "directory": folder}).start(*optimizer_of(), state=state())

    def test_several_optimisers_and_those_of_another_model(self):
        import torch

        with tempfile.TemporaryDirectory() as folder:
            (left, a), (right, b) = optimizer_of(0.1), optimizer_of(0.2)
            island = island_of()
            island.start([left, right], {"a": a, "b": b})
            island._save(folder)
            (left, c), (right, d) = optimizer_of(1), optimizer_of(1)
            island_of({"step": 0, "position": 0, "directory": folder}).start([left, right], {"a": c, "b": d})
            self.assertEqual([one.param_groups[0]["lr"] for one in (c, d)], [0.1, 0.2])
        with self.assertRaisesRegex(ValueError, r"optimizer 0 trains a parameter of shape \(1, 2\) that the model lacks"):
            island_of().start(left, b)
        with self.assertRaisesRegex(ValueError, r"optimizer\[0\] is of type Linear"):
            island_of().start(left, [left])
        with self.assertRaisesRegex(ValueError, r"scheduler\[0\] is of type SGD"):
            island_of().start(left, c, scheduler=c)
        with self.assertRaisesRegex(ValueError, "'w' has type complex64, which float32 cannot carry"):
            island_of().start(torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))}))

    def test_callbacks_refuse_data_that_are_not_cut(self):
        import types

        from atoll.callbacks import HuggingFaceCallback, LightningCallback

        def begun(callback, said=None, ours=False, **configuration):
            model, opt = optimizer_of()
            trainer, island = types.SimpleNamespace(optimizers=[opt]), island_of(**configuration)
            made = callback(island, samples=1, data=said)
            if callback is LightningCallback:  # whose trainer gets the data after it
                trainer.train_dataloader = island.loader([0, 1]) if ours else [0, 1]
                made.on_train_start(trainer, model)

        cut = {"data": {"part": 1, "parts": 2}}
        for callback in (HuggingFaceCallback, LightningCallback):
            with self.assertRaisesRegex(ValueError, "part 1 of 2 of the data, and the loop's data are not cut"):
                begun(callback, **cut)
            begun(callback, "own", **cut)
            begun(callback)
        begun(LightningCallback, ours=True, **cut)

    def test_the_frameworks_schedulers_follow_the_run(self):
        import types

        import torch

        from atoll.callbacks import HuggingFaceCallback, LightningCallback

        linear = lambda opt: torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 - step / 300)  # noqa: E731
        for framework in ("huggingface", "lightning"):
            model, opt = optimizer_of()
            sched, control = linear(opt), types.SimpleNamespace(should_training_stop=False)
            config = types.SimpleNamespace(scheduler=sched, interval="step", frequency=1, reduce_on_plateau=False)
            trainer = types.SimpleNamespace(optimizers=[opt], lr_scheduler_configs=[config], should_stop=False)
            island = island_of({"step": 50, "position": 50})
            if framework == "huggingface":
                callback = HuggingFaceCallback(island, samples=1)
                callback.on_train_begin(None, None, control, model=model, optimizer=opt, lr_scheduler=sched)
            else:
                callback = LightningCallback(island, samples=1)
                callback.on_train_start(trainer, model)
            for step in (50, 51):
                self.assertAlmostEqual(opt.param_groups[0]["lr"], 0.1 * (1 - step / 300), msg=framework)
                opt.step()
                sched.step()
                if framework == "huggingface":
                    callback.on_step_end(None, None, control)
                else:
                    callback.on_train_batch_end(trainer, model, None, None, 0)
