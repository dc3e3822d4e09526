"""island.train(): a loop that stays as it was, with the real PyTorch. Arguments as own_test.py's.

What counts, and what must not; where it goes on after jumps and kills; that the model is the run's.
"""

import contextlib
import io
import json
import os
import pathlib
import random
import resource
import subprocess
import tempfile
import time
import unittest
import warnings

from islands import ATOLL, HERE, PYTHON, Agents, needs_torch, tensors_of

import numpy
from fake_agent import FakeAgent
from followed import STEPS, STRATEGIES, Followed
from true_loops import TrueLoops, island_of, optimizer_of

WITHOUT = {key: value for key, value in os.environ.items() if key != "ATOLL_ISLAND_LINK"}


def program(name, *more):
    return [PYTHON, str(HERE / "train_loops.py"), name, *map(str, more)]


def trained(island, how=None, batch=2, items=40, micro=1, each=None, scheduler=None, workers=0, **start):
    """(step, rate, samples) of each batch. each: (number, model, opt) → whether the batch's step is done; None: every `micro`th batch's."""
    import torch

    model, opt = optimizer_of()
    sched = scheduler(opt) if scheduler else None
    loader, said = island.loader(list(range(items)), batch_size=batch, num_workers=workers), []
    with island.train(model, opt, scheduler=sched, **start):
        for number, samples in enumerate(loader):
            said.append((island.step, round(opt.param_groups[0]["lr"], 9), samples.tolist()))
            loss = model(torch.ones(2)).sum()
            (loss / micro).backward()
            island.log(loss=float(number))
            if (each(number, model, opt) if each else number % micro == micro - 1) and each is None:
                opt.step()
                opt.zero_grad()
            if sched:
                sched.step()
    return said


def rate(step):
    return 0.01 * max(0.02, 1 - step / STEPS)


def linear(opt):
    import torch

    return torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 - step / 300)


class Answers:
    """What an island's agent was told of its steps."""

    def __init__(self, island):
        self.steps, self.samples, self.losses = 0, 0, []
        inner = island._trainer.answer

        def answer(steps=0, samples=0, losses=(), **rest):
            self.steps += max(steps, 1) if island._trainer._in_hand.kind == 2 else 0
            self.samples += samples
            self.losses += list(losses)
            return inner(steps=steps, samples=samples, losses=losses, **rest)

        island._trainer.answer = answer


@needs_torch
class Traps(unittest.TestCase):
    """What a step is, whatever the loop does."""

    def counted(self, steps=12, **how):
        from atoll.torch import Alone, TorchIsland

        island = TorchIsland(Alone({"training": {"steps": steps}}, every=3), {})
        answers = Answers(island)
        with contextlib.redirect_stderr(io.StringIO()):
            said = trained(island, scheduler=linear, **how)
        self.assertEqual(island.step, steps)
        self.assertEqual((answers.steps, answers.samples), (steps, island.position))
        for step, rate, _ in said:
            self.assertAlmostEqual(rate, 0.1 * (1 - step / 300), places=8)
        return island, said, answers

    def test_a_step_for_each_batch(self):
        island, said, answers = self.counted()
        self.assertEqual(([step for step, _, _ in said], island.position), (list(range(12)), 24))
        self.assertEqual(answers.losses, list(range(12)))

    def test_accumulation_is_one_step_with_all_its_samples_and_the_mean_of_their_losses(self):
        island, said, answers = self.counted(micro=4)
        self.assertEqual(([step for step, _, _ in said], island.position), ([step for step in range(12) for _ in range(4)], 96))
        self.assertEqual(answers.losses, [4 * step + 1.5 for step in range(12)])

    def test_a_batch_that_is_left_out_is_no_step_and_its_samples_do_not_come_again(self):
        def each(number, model, opt):
            if number % 3 != 1:
                opt.step()

        island, said, _ = self.counted(each=each)
        self.assertEqual([step for step, _, _ in said[:7]], [0, 1, 1, 2, 3, 3, 4])
        self.assertEqual(island.position, 2 * len(said))
        self.assertEqual(len({sample for _, _, samples in said for sample in samples}), 2 * len(said))

    def test_a_step_that_a_grad_scaler_leaves_out_is_none(self):
        import torch

        real = getattr(torch.amp, "GradScaler", None)
        skipped = []
        if real:
            scaler = real("cpu", init_scale=8.0)

            def each(number, model, opt):
                opt.zero_grad()
                scaler.scale(model(torch.ones(2)).sum() * (float("inf") if number in (0, 1, 5) else 1)).backward()
                before = scaler.get_scale()
                scaler.step(opt)
                scaler.update()
                skipped.append(scaler.get_scale() < before)
        else:

            def each(number, model, opt):  # as it does where there is no GPU to have one
                skipped.append(number in (0, 1, 5))
                if not skipped[-1]:
                    opt.step()

        island, said, _ = self.counted(each=each)
        self.assertEqual([number for number, left_out in enumerate(skipped) if left_out], [0, 1, 5])
        self.assertEqual([step for step, _, _ in said[:8]], [0, 0, 0, 1, 2, 3, 3, 4])

    def test_a_lost_model_whose_steps_are_all_left_out_is_said(self):
        import torch

        from atoll.torch import Alone, TorchIsland

        island = TorchIsland(Alone({"training": {"steps": 12}}), {})
        model, opt = optimizer_of()
        with self.assertRaisesRegex(RuntimeError, "no optimiser has stepped on the last 64 batches after step 3, and none of their losses was finite"):
            with island.train(model, opt):
                for number, _ in enumerate(island.loader(list(range(40)))):
                    self.assertLess(number, 200)
                    if number < 70 and number % 20 == 0 and island.step < 3:  # few steps, and few losses that are finite
                        opt.step()
                    island.log(loss=torch.tensor(1.0 if number % 10 == 0 and number < 100 else float("nan")))

    def test_an_optimiser_that_steps_twice_on_a_batch_does_two_steps(self):
        island, said, _ = self.counted(each=lambda number, model, opt: (opt.step(), opt.step()))
        self.assertEqual(([step for step, _, _ in said], island.position), ([0, 2, 4, 6, 8, 10], 12))

    def test_a_wrapped_optimiser_that_leaves_out_steps_itself(self):
        """As Accelerate's, whose inner optimiser steps where gradients are synchronised."""
        import torch

        from atoll.torch import Alone, TorchIsland

        class Wrapper(torch.optim.Optimizer):
            def __init__(self, inner):
                self.optimizer, self.calls = inner, 0

            param_groups = property(lambda self: self.optimizer.param_groups)

            def step(self, closure=None):
                self.calls += 1
                if self.calls % 2 == 0:
                    self.optimizer.step()

        island, (model, opt) = TorchIsland(Alone({"training": {"steps": 5}}), {}), optimizer_of()
        wrapped, batches = Wrapper(opt), 0
        with contextlib.redirect_stderr(io.StringIO()), island.train(model, wrapped):
            for _ in island.batches(iter(int, 1), samples=3):
                batches += 1
                wrapped.step()
        self.assertEqual((batches, island.position), (10, 30))
        self.assertFalse("step" in vars(opt) or getattr(opt, "_optimizer_step_post_hooks", None))  # nothing is left in it

    def test_an_evaluation_leaves_the_model_as_the_loop_trains_it(self):
        """A loop says model.train() once; dropout would be off after the first evaluation."""
        import torch

        from atoll.torch import Alone, TorchIsland

        island, modes = TorchIsland(Alone({"training": {"steps": 8}}, every=2), {}), []
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(2))
        opt = torch.optim.SGD(model.parameters(), 0.1)
        model.train()[2].eval()  # a part that is kept so

        def evaluate():
            model.eval()
            return model(torch.ones(4, 2)).sum()

        with contextlib.redirect_stderr(io.StringIO()), island.train(model, opt, evaluate=evaluate):
            for batch in island.loader(torch.ones(40, 2), batch_size=2):
                modes.append([module.training for module in model.modules()])
                model(batch).sum().backward()
                opt.step()
        self.assertEqual(modes, [[True, True, True, False]] * 8)

    def test_an_evaluation_leaves_the_random_numbers_and_the_losses_of_the_training(self):
        """How often a run is evaluated, and by whom, is no matter of what it trains on."""
        import torch

        drawn = {}
        for evaluated in (False, True):

            def evaluate():
                self.assertRaisesRegex(RuntimeError, "is for the loss of a batch in training", island.log, loss=100.0)
                island.log(seen=1.0)
                torch.manual_seed(7)
                random.seed(7)
                numpy.random.seed(7)
                return torch.rand(())

            from atoll.torch import Alone, TorchIsland

            island, (model, opt) = TorchIsland(Alone({"training": {"steps": 9}}, every=2), {}), optimizer_of()
            answers, drawn[evaluated] = Answers(island), []
            for seed in (torch.manual_seed, random.seed, numpy.random.seed):
                seed(1)
            with contextlib.redirect_stderr(io.StringIO()) as said, island.train(model, opt, evaluate=evaluate if evaluated else None):
                for _ in island.loader(list(range(40))):
                    drawn[evaluated].append((float(torch.rand(())), random.random(), float(numpy.random.rand())))
                    opt.step()
                    island.log(loss=2.0)
            self.assertEqual((answers.losses, "held-out loss" in said.getvalue()), ([2.0] * 9, evaluated))
        self.assertEqual(drawn[True], drawn[False])

    def test_two_optimisers_do_one_step_together(self):
        done = subprocess.run(program("gan"), env=WITHOUT, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step 40: training loss", done.stderr)

    def test_gradients_are_exchanged_before_the_step(self):
        with FakeAgent(program("reduces"), payload="gradient") as agent:
            agent.lay_out()
            for step in (1, 2):
                said = agent.round(step, step, gradient=True)
                self.assertEqual((said[0]["step"], said[0]["position"]), (step, 3 * step))
                if step == 2:
                    self.assertEqual(said[0]["loss"], 0.5)
            numpy.testing.assert_allclose(agent.parameters()[:2], 1 - 2 * 0.1 * 0.5, rtol=1e-6)
            self.assertEqual(agent.stop(), 0, agent.text())

    def test_what_ends_before_the_run_is_refused_with_both_numbers(self):
        from atoll.torch import Alone, TorchIsland

        def island(**training):
            return TorchIsland(Alone({"training": training}), {})

        one, (model, opt) = island(steps=300), optimizer_of()
        with self.assertRaisesRegex(RuntimeError, r"left after step 2 of 300, and the run goes on") as failure:
            with one.train(model, opt):
                for _ in one.batches(range(2), samples=1):
                    opt.step()
        self.assertTrue(failure.exception.permanent)
        one = island(steps=2)
        with contextlib.redirect_stderr(io.StringIO()), one.train(model, opt):  # which ends with the run is right
            for _ in one.batches(range(2), samples=1):
                opt.step()
        self.assertTrue(one.complete)
        one = island(steps=300)
        with contextlib.redirect_stderr(io.StringIO()), one.train(model, opt):
            for number in one.batches(range(300), samples=1):
                opt.step()
                if number == 4:
                    one.enough("it is good")
        self.assertEqual((one.complete, one.step), (True, 5))

    def ended(self, loop, steps=6, **how):
        """loop: (island, model, opt), in island.train(). The model's values as the run has ended with them, and as they are after the loop."""
        import torch

        from atoll.torch import Alone, TorchIsland

        class Ends(Alone):
            def next(self, timeout_ms):
                order = super().next(timeout_ms)
                if order.kind == library.STOP:
                    last.extend(values.clone() for values in model.state_dict().values())
                return order

        from atoll import _library as library

        last = []
        island = TorchIsland(Ends({"training": {"steps": steps}}), {})
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), island.train(model, opt, **how):
            loop(island, model, opt)
        self.assertEqual((island.complete, island.step), (True, steps))
        return last, list(model.state_dict().values()), said.getvalue()

    def test_a_loop_that_takes_a_batch_ahead_of_its_step_ends_with_the_run_s_model(self):
        import torch

        def step(batch, model, opt):
            opt.zero_grad()
            model(torch.ones(4, 2) * torch.as_tensor([float(batch[0]), 1.0])).pow(2).sum().backward()
            opt.step()

        def ahead(island, model, opt):
            batches = iter(island.loader(list(range(40)), batch_size=2))
            batch = next(batches, None)
            while batch is not None:
                now, batch = batch, next(batches, None)
                step(now, model, opt)

        def plain(island, model, opt):
            for batch in island.loader(list(range(40)), batch_size=2):
                step(batch, model, opt)

        for loop, late in ((ahead, True), (plain, False)):
            last, now, said = self.ended(loop, buffers="mean")
            self.assertEqual([values.tolist() for values in now[:-1]], [values.tolist() for values in last[:-1]])  # but for the batches seen
            self.assertEqual("a step after the run's end; the model is the run's again" in said, late)

    def test_what_asks_for_a_batch_behind_the_last_one_ends_with_the_run(self):
        def endless(island, model, opt):
            loader = island.loader(list(range(40)), batch_size=2)
            batches = iter(loader)
            while True:
                try:
                    next(batches)
                except StopIteration:
                    batches = iter(loader)
                    next(batches)
                opt.step()

        self.ended(endless)
        with self.assertRaises(StopIteration):  # of something else
            self.ended(lambda island, model, opt: next(iter(())))

    def test_batches_of_another_thread_are_refused(self):
        import threading

        from atoll._island import Misused

        def elsewhere(island, model, opt):
            thread = threading.Thread(target=lambda: why.append(self.raised(lambda: next(iter(island.loader([1, 2]))))))
            thread.start()
            thread.join()
            raise why[0]

        why = []
        with self.assertRaisesRegex(Misused, "in another thread than island.train"):
            self.ended(elsewhere)

    def raised(self, call):
        try:
            return call()
        except Exception as failure:
            return failure

    def test_an_optimiser_that_nobody_knows_of_is_refused(self):
        import torch

        from atoll._island import Misused

        if not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
            self.skipTest("PyTorch 1.13 does not tell of other optimisers")

        class Sharp(torch.optim.Optimizer):
            """As SAM: its own step() is not called."""

            def __init__(self, parameters):
                super().__init__(parameters, {"rho": 0.05})
                self.base_optimizer = torch.optim.SGD(self.param_groups, 0.1)

            def second_step(self):
                self.base_optimizer.step()

        def other(island, model, opt):
            copied = torch.nn.Linear(1, 1)
            torch.optim.SGD(copied.parameters(), 0.1).step()  # of a model that is nobody else's
            torch.optim.Adam(model[1].parameters()).step()

        with self.assertRaisesRegex(Misused, "an optimiser of type Adam steps parameters that the islands share"):
            self.ended(other)
        from atoll.torch import Alone, TorchIsland

        island, (model, _) = TorchIsland(Alone({"training": {"steps": 3}}), {}), optimizer_of()
        sharp = Sharp(model.parameters())
        with contextlib.redirect_stderr(io.StringIO()), island.train(model, sharp):
            for batch in island.loader(list(range(9))):
                self.assertLess(island.position, 9)
                sharp.second_step()
        self.assertEqual((island.step, island.position), (3, 3))

    def test_gradients_that_a_closure_computes_are_refused_where_they_are_exchanged(self):
        with FakeAgent(program("closes"), payload="gradient") as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=50, publish=[], merge=[])
            failed = agent.expect("failed")
            self.assertIn("optimizer.step(closure) computes others behind that", failed["why"])
            self.assertTrue(failed["permanent"])

    def test_an_agent_is_told_of_a_loop_that_ends_before_the_run(self):
        with FakeAgent(program("leaves")) as agent:
            agent.lay_out()
            agent.link.send("plan", until_step=50, publish=[], merge=[])
            failed = agent.expect("failed")
            self.assertIn("the loop was left after step 3 of 100, and the run goes on", failed["why"])
            self.assertTrue(failed["permanent"])
            self.assertEqual(agent.process.wait(60), 1)

    def test_misuse_is_one_line(self):
        import torch

        from atoll.torch import Alone, Loader, TorchIsland

        island, (model, opt) = TorchIsland(Alone({"training": {"steps": 3}}), {}), optimizer_of()
        loader = island.loader([1, 2, 3])
        for call, why in (
            (lambda: next(iter(loader)), "inside of `with island.train"),
            (lambda: island.log(loss=1.0), "inside of `with island.train"),
            (lambda: island.loader([1]), "is called once"),
            (lambda: island.train(model, None).__enter__(), "the optimiser is missing"),
            (lambda: Loader(island, iter([])), "of type list_iterator has no length and no index"),
            (lambda: Loader(island, [1], sampler=[0]), r"sampler=…\): which samples come"),
            (lambda: Loader(island, [1], batch_size=0), "batch_size is 0"),
            (lambda: Loader(island, [1], batch_size=None), "batch_size is None; it is a number of samples"),
        ):
            with self.subTest(why), self.assertRaisesRegex((RuntimeError, ValueError), why):
                call()
        two = TorchIsland(Alone({"payload": "gradient"}), {})
        with self.assertRaisesRegex(ValueError, "take one optimiser"):
            two.train([model, model], [opt, torch.optim.SGD(model.parameters(), 0.1)]).__enter__()


@needs_torch
class Jumps(unittest.TestCase):
    """The run's step and position move, and the schedule and the data with them."""

    def test_the_rate_is_that_of_the_run_s_step_whatever_jumps(self):
        from atoll import _library as library

        warnings.simplefilter("ignore")
        for name, make in TrueLoops().schedulers().items():
            with self.subTest(name):
                whole = {step: rate for step, rate, _ in trained(island_of(), scheduler=make)}
                self.assertEqual(len(whole), 300)
                orders = {120: library.Order(library.STAND_AT, step=150, position=300), 200: library.Order(library.STAND_AT, step=190, position=380)}
                for island, count in ((island_of({"step": 50, "position": 100}), 250), (island_of(orders=orders), 280)):
                    said = trained(island, scheduler=make)
                    self.assertEqual([rate for _, rate, _ in said], [whole[step] for step, _, _ in said])
                    self.assertEqual(len(said), count)

    def test_the_same_samples_come_whatever_the_number_of_workers(self):
        from atoll import _library as library

        for workers in (0, 1, 3):
            island = island_of(orders={7: library.Order(library.STAND_AT, step=20, position=61)})
            said = [samples for step, _, samples in trained(island, workers=workers, batch=3) if step < 30]
            first = said if workers == 0 else first
            self.assertEqual(said, first)
        order = [sample for samples in said[:7] for sample in samples]
        self.assertEqual(len(set(order)), 21)

    def test_samples_that_were_prepared_and_are_another_island_s_now_do_not_come(self):
        """Data are dealt anew from a position on that lies inside of a batch which the workers have prepared."""
        from atoll import _library as library

        before = {"classes": 2, "stretches": [{"from": 0, "classes": [{"number": 0, "next": 0}, {"number": 1, "next": 0}]}]}
        after = {"classes": 2, "stretches": [*before["stretches"], {"from": 25, "classes": [{"number": 1, "next": 13}]}]}
        for workers in (0, 2):
            island = island_of(orders={5: library.Order(library.NONE, data=after)}, data=before)
            said = [sample for step, _, samples in trained(island, workers=workers, batch=3, items=1000) if step < 20 for sample in samples]
            data = island.dataset(list(range(1000)))
            island.deal(before)
            expected = data.indices(0, 25)
            island.deal(after)
            self.assertEqual(said, expected + data.indices(25, 35))

    def test_passes(self):
        from atoll.torch import Alone, TorchIsland

        island, (model, opt) = TorchIsland(Alone({"training": {"steps": 14}}), {}), optimizer_of()
        loader, passes = island.loader(list(range(10)), batch_size=2), []
        with contextlib.redirect_stderr(io.StringIO()), island.train(model, opt):
            for epoch in loader.epochs():
                samples = []
                for batch in loader:
                    samples += batch.tolist()
                    opt.step()
                passes.append((epoch, samples))
        self.assertEqual([epoch for epoch, _ in passes], [0, 1, 2])
        self.assertEqual([sorted(samples) for _, samples in passes[:2]], [list(range(10))] * 2)
        self.assertNotEqual(passes[0][1], passes[1][1])
        self.assertEqual((len(passes[2][1]), len(loader)), (8, 5))

    def test_alone_it_is_killed_and_goes_on_bit_for_bit(self):
        import torch

        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as killed:
            run = lambda folder, workers, **more: subprocess.run(  # noqa: E731
                program("follows", 45, folder, workers), env={**WITHOUT, **more}, capture_output=True, text=True, timeout=120
            )
            self.assertEqual(run(whole, 0).returncode, 0)
            self.assertEqual(run(killed, 2, DIES_AT="24").returncode, 9)
            again = run(killed, 1)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertRegex(again.stderr, "goes on after step 20")
            self.assertRegex(again.stderr, r"step 45: training loss .*, doubled .*, held-out loss ")
            ends = [torch.load(folder + "/alone.pt") for folder in (whole, killed)]
            for name, values in ends[0]["model"].items():
                self.assertTrue(torch.equal(values, ends[1]["model"][name]))
            lines = [[json.loads(line) for line in pathlib.Path(folder, "alone.steps").read_text().splitlines()] for folder in (whole, killed)]
            kept = {line["step"]: line for line in lines[1]}  # the later ones of those that were done twice
            self.assertEqual(list(kept.values()), lines[0])
            passed = [sample for line in lines[0][:40] for sample in line["samples"]]
            self.assertEqual(sorted(passed), list(range(240)))


    def test_saved_on_request_it_goes_on_alone_as_if_it_had_not_been(self):
        """In the middle of a pass, of an island that shares the data: model, moments, schedule, generators and samples go on."""
        import torch

        from atoll.torch import Alone, TorchIsland

        data = {"classes": 2, "stretches": [{"from": 0, "classes": [{"number": 1, "next": 0}]}]}

        def ran(island, asks=lambda step: False):
            torch.manual_seed(island.step)
            model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
            opt, said, kept = torch.optim.AdamW(model.parameters(), 0.01), [], {"count": 0}
            sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step))
            with contextlib.redirect_stderr(io.StringIO()), island.train(model, opt, scheduler=sched, state=kept):
                for micro, samples in enumerate(island.loader(list(range(30)), batch_size=3)):
                    loss = model(torch.ones(3, 2) * samples[:, None]).pow(2).mean() / 2
                    loss.backward()
                    said.append((island.step, samples.tolist(), opt.param_groups[0]["lr"], loss.item(), kept["count"]))
                    if asks(island.step):
                        island.save(folder)  # in the middle of an accumulation: once its step is done
                    if micro % 2:
                        kept["count"] += 1
                        opt.step()
                        sched.step()
                        opt.zero_grad()
            return said

        with tempfile.TemporaryDirectory() as folder:
            whole = ran(TorchIsland(Alone({"seed": 7, "data": data, "training": {"steps": 40}}), {}), lambda step: step in (4, 16))
            self.assertEqual(os.listdir(folder), ["17"])
            again = ran(TorchIsland(Alone({}, folder=folder, every=10), {}))
            self.assertEqual(again, whole[2 * 17 :])
            self.assertEqual(os.listdir(folder), ["40"])
            self.assertEqual(ran(TorchIsland(Alone({}, folder=folder), {})), [])

    def test_an_average_stands_at_the_run_s_step(self):
        """Alone and killed as a plain loop has it; over steps that were left out, as if they had ended with the parameters as they are."""
        import torch

        from atoll import _library as library
        from atoll.torch import Alone, TorchIsland

        def ran(island, **how):
            (model, opt), seen = optimizer_of(), {}
            with torch.no_grad():
                model.weight.fill_(1.0)
                model.bias.fill_(2.0)
            with contextlib.redirect_stderr(io.StringIO()), island.train(model, opt, average=0.9, **how):
                for _ in island.batches(iter(int, 1), samples=1):
                    seen[island.step] = (model.weight.tolist(), island.average["weight"].tolist())
                    opt.zero_grad()
                    model(torch.ones(2)).sum().backward()
                    opt.step()
            return {step: (numpy.array(weight), numpy.array(average)) for step, (weight, average) in seen.items()}

        def follows(seen):
            steps = sorted(seen)
            expected = seen[steps[0]][1]
            for before, step in zip(steps, steps[1:]):
                share = 1 - 0.9 ** (step - before)
                expected = expected + share * (seen[step][0] - expected)
                numpy.testing.assert_allclose(seen[step][1], expected, rtol=1e-5, err_msg=str(step))

        with tempfile.TemporaryDirectory() as folder:
            plain = ran(TorchIsland(Alone({"training": {"steps": 30}}, every=10, folder=folder), {}))
            numpy.testing.assert_array_equal(*plain[0])
            follows(plain)
            again = ran(TorchIsland(Alone({"training": {"steps": 60}}, folder=folder), {}))
            self.assertEqual(min(again), 30)
            follows({**plain, **again})
        follows(ran(island_of(orders={7: library.Order(library.STAND_AT, step=20, position=20)}, training={"steps": 40})))
        for bad in (1.0, -0.1):
            with self.assertRaisesRegex(ValueError, f"average is {bad}"):
                island_of().start(*optimizer_of(), average=bad)

    def test_an_average_comes_with_a_merge_wherever_the_run_is(self):
        """Of one that joins late: what the others have, not moved by the steps that it has not done; in either order."""
        import torch

        from atoll import _library as library

        for merges_at in (0, 50):
            island, (model, opt) = island_of(), optimizer_of()
            island.start(model, opt, average=0.5)
            self.assertEqual([name for name, *_ in island.agent.parameters], ["weight", "bias", "average.weight", "average.bias"])
            self.assertEqual([block for *_, block, _ in island.agent.parameters], [0] * 4)
            self.assertEqual([kind for *_, kind in island.agent.parameters], [0, 0, library.BUFFER_MEAN, library.BUFFER_MEAN])
            island._arena[:] = 5.0
            island._arena[3:] = 3.0
            orders = [library.Order(library.STAND_AT, step=50, position=50), library.Order(library.MERGE)]
            for order in orders if merges_at else reversed(orders):
                island._carry_out(order)
            self.assertTrue(island.wants_step())
            self.assertEqual((island.average["weight"].tolist(), model.bias.tolist()), ([[3.0, 3.0]], [5.0]))
            island.done(samples=1)
            with torch.no_grad():
                model.weight.fill_(7.0)
            island._carry_out(library.Order(library.WRITE))
            self.assertEqual(island._arena.tolist(), [7.0, 7.0, 5.0, 5.0, 5.0, 4.0])

    def test_it_is_saved_where_a_step_has_ended(self):
        import torch

        island, (model, opt) = island_of(), optimizer_of()
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(RuntimeError, "comes after island.done"):
                island.save(folder)
            island.start(model, opt)
            for step in island.steps():
                if step == 0:
                    with self.assertRaisesRegex(RuntimeError, "comes after island.done"):
                        island.save(folder)
                opt.step()
                island.done(samples=2)
                if step == 5:
                    island.save(folder)
            self.assertEqual(os.listdir(folder), ["6"])
            saved = torch.load(folder + "/6/state.pt", weights_only=False)  # as a program without Atoll does
            again, fresh = optimizer_of()
            again.load_state_dict(saved["model"])
            fresh.load_state_dict(saved["optimizer"])
            self.assertEqual(saved["step"], 6)

    def test_a_folder_that_takes_no_more_is_said_and_keeps_what_it_has(self):
        """A full disk too, of which torch.save() makes another exception, or ends the process (PyTorch 1.13)."""
        import torch

        island, (model, opt), before = island_of(), optimizer_of(), resource.getrlimit(resource.RLIMIT_FSIZE)
        with tempfile.TemporaryDirectory() as folder:
            island.start(model, opt)
            for step in island.steps():
                opt.step()
                island.done(samples=2)
                if step == 2:
                    island.save(folder)
                    kept = pathlib.Path(folder, "3/state.pt").read_bytes()
                if step == 4:
                    try:
                        resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
                        with self.assertRaisesRegex(OSError, f"nothing is saved in {folder}, and what was there stays: .*File too large"):
                            island.save(folder)
                    finally:
                        resource.setrlimit(resource.RLIMIT_FSIZE, before)
                    with self.assertRaisesRegex(OSError, "nothing is saved in /dev/null/x, and what was there stays: .*Not a directory"):
                        island.save("/dev/null/x")
                    if torch.__version__ < "2":
                        with self.assertRaisesRegex(ValueError, "PyTorch 1.* has no torch.distributed.checkpoint that can do it .*: leave dcp=True out"):
                            island.save(folder, dcp=True)
            self.assertEqual((os.listdir(folder), pathlib.Path(folder, "3/state.pt").read_bytes()), (["3"], kept))

    def test_steps_of_a_loop_with_an_optimiser_say_what_to_write_instead(self):
        """Once, at the line of the program; a loop without one, and one in train(), hear nothing."""

        def heard(optimises, trains=False):
            island, (model, opt) = island_of(training={"steps": 3}), optimizer_of()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                if trains:
                    with island.train(model, opt):
                        for _ in island.batches(range(9), samples=1):
                            opt.step()
                else:
                    island.start(model, opt if optimises else None)
                    for _ in island.steps():
                        island.done(samples=1)
            return [(str(each.message), each.category, os.path.basename(each.filename)) for each in said]

        ((text, kind, file),) = heard(True)
        self.assertIn("write `with island.train(model, optimizer): for batch in island.loader(dataset, batch_size=…): …` in place of start(), steps() and done()", text)
        self.assertEqual((kind, file), (DeprecationWarning, "train_test.py"))
        self.assertEqual((heard(False), heard(True, trains=True)), ([], []))

    def test_one_that_is_replaced_is_there_until_the_other_is(self):
        from atoll.torch import Alone, TorchIsland

        with tempfile.TemporaryDirectory() as folder:
            (model, opt), island = optimizer_of(), TorchIsland(Alone({"training": {"steps": 4}}, folder=folder), {})
            with contextlib.redirect_stderr(io.StringIO()), island.train(model, opt):
                for _ in island.batches(range(9), samples=1):
                    opt.step()
            os.rename(folder + "/4", folder + "/former")  # what a kill leaves there
            self.assertEqual(Alone({}, folder=folder).configuration["resume"]["step"], 4)


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class TrainIslands(Followed):
    def test_an_island_is_saved_and_its_program_goes_on_without_an_agent(self):
        """With `local`, where nobody else has a part in the model, to the bits of the island that went on."""
        import torch

        with tempfile.TemporaryDirectory() as folder:
            given = {"folder": folder, "save_at": 24}
            process = self.local(folder, f"{PYTHON} '{HERE}/train_loops.py' follows", given, 60, "name = 'local'\ninner_steps = 10", islands=1)
            self.completed(process)
            done = subprocess.run(program("follows"), env={**WITHOUT, "GOES_ON_IN": folder + "/kept"}, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("goes on after step 25", done.stderr)
            lines = {name: self.steps_of(folder, name) for name in ("island-1", "alone")}
            self.assertEqual(lines["alone"], lines["island-1"][25:])
            kept = [torch.load(f"{folder}/{name}.pt") for name in lines]
            self.assertEqual([one["step"] for one in kept], [60, 60])
            for name, values in kept[0]["model"].items():
                self.assertTrue(torch.equal(values, kept[1]["model"][name]), name)

    """Two islands of the real executable."""

    def plain(self):
        with tempfile.TemporaryDirectory() as folder:
            import torch

            done = subprocess.run(program("follows", STEPS, folder), env=WITHOUT, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            return torch.load(folder + "/alone.pt")["loss"]

    def test_a_trainer_is_killed(self):
        import torch

        plain = self.plain()
        for strategy in STRATEGIES:
            with self.subTest(strategy), tempfile.TemporaryDirectory() as folder:
                settings = {"folder": folder, "workers": 2, "pause": 0.01, "average": 0.9}
                process = self.local(folder, f"{PYTHON} '{HERE}/train_loops.py' follows", settings, STEPS, STRATEGIES[strategy])
                self.goes_on(folder, process, "train_loops.py")
                names = ["island-1", "island-2"]
                self.follow_the_run(folder, names, rate)
                exported = tensors_of(folder + "/model.safetensors")
                shared = {name: values for name, values in exported.items() if not name.startswith("average.")}
                self.assertLess(self.have_the_exported_model(folder, names, shared), 1.5 * plain + 0.01)
                for name, values in torch.load(f"{folder}/island-2.pt")["average"].items():
                    numpy.testing.assert_array_equal(values.numpy(), exported["average." + name], name)


@needs_torch
@unittest.skipUnless(ATOLL, "the executable is not given")
class TrainAgents(Agents, Followed):
    def agent(self, name, loop="follows", *options):
        token = ["--join", self.said("token", "create", "-q", "--state", self.state("coordinator"))] if name not in self.running else []
        trainer = f"own={PYTHON} '{HERE}/train_loops.py' {loop}"
        self.begin(name, "agent", "--state", self.state(name), "--name", name, "--bind", "tcp://127.0.0.1:*", "--trainer", trainer, *token, *options)

    def reaches(self, name, step):
        self.wait_until(lambda: (self.steps_of(self.folder.name, name) or [{"step": -1}])[-1]["step"] >= step)

    def test_one_joins_late_and_its_agent_is_killed_and_comes_back(self):
        path = pathlib.Path(self.state("run.toml"))
        path.write_text(
            f"[run]\nname = 'follows'\n[trainer]\nname = 'own'\n[trainer.settings]\nfolder = '{self.folder.name}'\nworkers = 1\npause = 0.02\naverage = 0.99\ngates = {{'40' = 'joined', '200' = 'back'}}\n"
            f"[training]\nsteps = {STEPS}\n[strategy]\n{STRATEGIES['diloco']}\n[islands]\nmin = 1\nmax = 2\n[checkpoint]\nevery_rounds = 1\n"
        )
        self.agent("a")
        run = self.said("submit", "-q", str(path), "--state", self.state("coordinator"))
        self.reaches("a", 30)
        self.agent("b")
        self.wait_until(lambda: self.steps_of(self.folder.name, "b"))
        self.assertGreaterEqual(self.steps_of(self.folder.name, "b")[0]["step"], 30)
        pathlib.Path(self.state("joined")).touch()
        joined = self.steps_of(self.folder.name, "b")[0]["step"]
        self.reaches("b", joined + 25)
        self.running["b"].kill()
        self.running["b"].wait()
        killed = len(self.steps_of(self.folder.name, "b"))
        time.sleep(0.5)  # in which the other goes on
        self.agent("b")
        self.wait_until(lambda: len(self.steps_of(self.folder.name, "b")) > killed)
        pathlib.Path(self.state("back")).touch()
        self.waited(run)
        self.wait_until(lambda: all(pathlib.Path(self.state(name) + ".pt").exists() for name in "ab"))
        self.said("export", run, "-o", self.state("model.safetensors"), "--state", self.state("coordinator"))
        self.follow_the_run(self.folder.name, "ab", rate)
        exported = tensors_of(self.state("model.safetensors"))
        self.have_the_exported_model(self.folder.name, "ab", {name: values for name, values in exported.items() if not name.startswith("average.")})
        self.have_the_average("ab", exported)

    def have_the_average(self, names, exported):
        """After each round of both the same, and at the end that of the mean of their parameters after each step of the run, from its first."""
        import torch

        steps = [{each["step"]: each for each in self.steps_of(self.folder.name, name)} for name in names]
        rounds = [step for step in steps[1] if step % 10 == 0 and step in steps[0]]
        self.assertGreaterEqual(len(rounds), 4)
        for step in rounds:
            self.assertEqual(steps[0][step]["average"], steps[1][step]["average"], f"step {step}")
        average = numpy.array(steps[0][0]["flat"])
        self.assertEqual(steps[0][0]["average"], steps[0][0]["flat"])
        kept = [torch.load(self.state(name) + ".pt")["average"] for name in names]
        for name, values in kept[0].items():
            for one in (kept[1][name].numpy(), exported["average." + name]):
                numpy.testing.assert_array_equal(values.numpy(), one, name)
        flat = lambda prefix: numpy.concatenate([exported[prefix + name].reshape(-1) for name in kept[0]])  # noqa: E731
        for step in range(1, STEPS + 1):
            there = [island[step]["flat"] for island in steps if step in island] or [flat("")]
            average = 0.99 * average + 0.01 * numpy.mean(there, axis=0)
        # All but the steps that were lost with the process: the reference has them where nobody else was there, and the run has not.
        self.assertLess(numpy.abs(flat("average.") - average).max(), 0.05 * numpy.abs(flat("") - average).max())


if __name__ == "__main__":
    unittest.main(verbosity=2)
