"""Copies between a GPU and the arena beside the steps, with a stand-in for the GPU (late_gpu.py): here are none. Arguments as own_test.py's."""

import json
import tempfile
import unittest

from islands import loop, needs_torch

import numpy
from fake_agent import FakeAgent


@needs_torch
class Copies(unittest.TestCase):
    """DeviceCopies alone, in many of the orders in which a GPU may run what is queued."""

    def some_rounds(self, how, seed):
        """Three rounds of what a fragment's life is, and the steps at which the processor waited: those of `wait()` alone."""
        import torch
        from atoll._device import DeviceCopies
        from late_gpu import Gpu

        gpu = Gpu(how, seed)
        whole, half, box = torch.ones(2, 3), torch.ones(4, dtype=torch.bfloat16), torch.ones(2, 2)
        own = (whole, half, box)
        gpu.take(own)
        with gpu.stand_in():
            arena = torch.zeros(18)
            places = (arena[:6].view(2, 3), arena[6:10], arena[10:].view(2, 4)[:, 1:3])
            copies, expected = DeviceCopies(arena, gpu), 1.0
            for _ in range(3):
                for tensor, place in zip(own, places):
                    tensor.add_(1)
                    copies.write(tensor, place)
                    tensor.add_(1)  # the next step
                loss = copies.numbers([whole.sum(), 0.5])
                out = copies.begun()
                for tensor in own:
                    tensor.add_(4)
                self.assertEqual(gpu.waited, [])
                out.wait()
                for place in places:
                    self.assertTrue((place == expected + 1).all(), (how, seed, place, expected))
                self.assertEqual(loss(), [6 * (expected + 2), 0.5])
                arena.mul_(0.5)  # the agent's result
                gpu.waited.clear()
                fetched = [copies.fetch(place, tensor.device) for tensor, place in zip(own, places)]
                back = copies.begun()
                for tensor, values in zip(own, fetched):
                    tensor.add_(1)  # a step before its merge
                    tensor.copy_(values())
                fetched = values = None
                for tensor in own:
                    tensor.add_(2)
                self.assertEqual(gpu.waited, [])
                back.wait()
                arena.fill_(-1)  # it is the agent's again
                gpu.waited.clear()
                expected = (expected + 1) / 2 + 2
            for tensor in own:
                self.assertTrue((tensor == expected).tolist()[0], (how, seed, tensor, expected))
            copies.close()

    def test_every_order_gives_what_was_there_at_its_step(self):
        for how in ("late", "some"):
            for seed in range(60):
                self.some_rounds(how, seed)


def without_clocks(messages):
    clocks = ("compute_seconds", "wait_seconds", "tokens_per_second")
    return [{key: value for key, value in message.items() if key not in clocks} for message in messages]


class Script:
    """What an agent says to a trainer whose rounds overlap its steps, and what the trainer says and writes."""

    def __init__(self, agent):
        self.agent, self.said, self.arenas = agent, [], []

    def orders(self, until, *rounds, save=None):
        """rounds: (round, fragment, step of its publish, step of its merge)"""
        self.agent.link.send(
            "plan",
            until_step=until,
            publish=[dict(round=r, fragment=f, step=begin, evaluate_local=False) for r, f, begin, _ in rounds],
            merge=[dict(round=r, fragment=f, step=end, alpha=0.5, evaluate=False, parameters=False, save=save) for r, f, _, end in rounds],
        )

    def hears(self, *kinds):
        """These messages come in this order; a fragment that is published gets its half as its result."""
        for kind in kinds:
            message = self.agent.expect("published", "merged", "saved", "loaded")
            self.said.append(message)
            if message["type"] == "published":
                fragment = self.agent.fragments[message["fragment"]]
                place = self.agent.arena[fragment["offset"] : fragment["offset"] + fragment["count"]]
                self.arenas.append(place.copy())
                place *= numpy.float32(0.5)
                self.agent.link.send("result", round=message["round"], fragment=message["fragment"], applied=True)
            assert message["type"] == kind, (kind, message, self.agent.text())


def streams(script, folder):
    script.orders(12, (1, 0, 3, 6), (2, 1, 5, 8), (3, 0, 9, 12))
    yield
    script.hears("published", "published", "merged", "merged", "published", "merged")


def comes_early(script, folder):
    script.orders(4, (1, 0, 3, 6))
    yield
    script.hears("published")
    script.agent.link.send("plan", until_step=6, publish=[], merge=[])
    script.hears("merged")


def saves(script, folder):
    script.orders(8, (1, 0, 3, 6), (2, 1, 6, 8), save=folder + "/trainer")
    yield
    script.hears("published", "published", "merged", "merged")


def streams_on(script, folder):
    script.orders(14, (3, 0, 10, 14))
    yield
    script.hears("published", "merged")


def exchanges_gradients(script, folder):
    script.orders(2, (1, 0, 1, 1), (2, 1, 1, 1), (3, 0, 2, 2), (4, 1, 2, 2))
    yield
    script.hears(*("published", "published", "merged", "merged") * 2)


def finishes(script, folder):
    script.orders(12, (1, 0, 3, 6), (2, 1, 5, 8))
    script.agent.link.send("finish", round=1, now=False, save=folder + "/trainer")
    yield
    script.hears("published", "published", "merged")


def finishes_now(script, folder):
    script.orders(12, (1, 0, 3, 6))
    script.agent.link.send("finish", round=1, now=True, save=folder + "/trainer")
    yield
    script.hears("published", "merged")


def skips(script, folder):
    script.orders(3, (1, 0, 3, 3))
    script.agent.link.send("skip", step=3)
    yield
    script.hears("published", "merged")


def loads(script, folder):
    script.orders(6, (1, 0, 3, 6), (2, 1, 6, 8))
    yield
    message = script.agent.expect("published")
    script.agent.expect("published")
    script.said.append(message)
    script.agent.arena[:] = numpy.linspace(0, 1, len(script.agent.arena))
    script.agent.link.send("load", fragments=[0, 1], step=2, position=12)
    script.orders(6, (3, 0, 4, 6))
    script.hears("loaded", "published", "merged")


def loads_after_a_fetch(script, folder):
    script.orders(4, (1, 0, 3, 6))
    yield
    script.hears("published")
    script.agent.link.send("save", directory=folder + "/trainer")
    script.agent.expect("saved")  # so its result has been fetched
    script.agent.arena[:] = numpy.linspace(0, 1, len(script.agent.arena))
    script.agent.link.send("load", fragments=[0, 1], step=2, position=12)
    script.hears("loaded")


@needs_torch
class Loops(unittest.TestCase):
    """The PyTorch loop of loops.py with its model on the stand-in, against itself without."""

    def run_loop(self, script, late, folder, ranks=1, resume=None, payload="parameters"):
        """What the trainer said, what lay in the arena when it said so, its parameters at the end, and the steps where it waited for the GPU
        and fetched results."""
        with FakeAgent(loop("torch", ranks), environment={"LATE_GPU": late}, resume=resume, payload=payload) as agent:
            told = Script(agent)
            steps = script(told, folder)
            agent.lay_out(fragments=2, before_ready=lambda: next(steps))
            next(steps, None)
            arenas = [*told.arenas, agent.parameters()]
            self.assertEqual(agent.stop(), 0, agent.text())
            seen = agent.text().partition("GPU ")[2]  # two ranks may say it on one line
        return without_clocks(told.said), arenas, json.JSONDecoder().raw_decode(seen)[0] if late else {}

    def same(self, script, *lates, resumed=None, **how):
        """The same is said and written with each, bit for bit, also by the script that goes on from what was saved; the steps where the last
        one waited and fetched."""
        ends = []
        for late in ("", *lates):
            with tempfile.TemporaryDirectory() as folder:
                said, arenas, seen = self.run_loop(script, late, folder, **how)
                if resumed:
                    more, more_arenas, _ = self.run_loop(resumed, late, folder, resume={"directory": folder + "/trainer", "step": 8, "position": 48})
                    said, arenas = said + more, arenas + more_arenas
            ends.append((said, arenas))
            self.assertEqual(said, ends[0][0], late)
            self.assertEqual(len(arenas), len(ends[0][1]))
            for before, then in zip(ends[0][1], arenas):
                numpy.testing.assert_array_equal(before, then, late)
        return seen

    def test_the_steps_go_on_while_a_fragment_is_copied(self):
        waited = self.same(streams, "some 1", "late 1")["waited"]
        self.assertIn(6, waited)  # for its first result
        self.assertLessEqual(set(waited), {6, 8, 9, 12})  # for results, for its part of the arena to be read before it is written, for the end

    def test_a_result_is_on_its_way_to_the_gpu_before_its_step(self):
        seen = self.same(comes_early, "some 1", "late 1")
        self.assertEqual(set(seen["fetched"]), {4})
        self.assertLessEqual(set(seen["waited"]), {4, 6})

    def test_two_ranks_of_which_the_first_copies(self):
        self.same(streams, "copies 1", ranks=2)

    def test_gradients_are_exchanged_inside_a_step(self):
        self.same(exchanges_gradients, "late 1", payload="gradient")

    def test_finish_and_load_find_what_was_published_before_them(self):
        for script in (finishes, loads, loads_after_a_fetch):
            with self.subTest(script.__name__):
                self.same(script, "late 1")

    def test_steps_that_are_left_out_change_nothing_of_what_is_published(self):
        for script in (finishes_now, skips):  # how many steps were done before it hears of that is a matter of time
            with self.subTest(script.__name__), tempfile.TemporaryDirectory() as folder:
                _, (published, ended), _ = self.run_loop(script, "late 1", folder)
                self.assertTrue(published.any())
                numpy.testing.assert_array_equal(ended[: len(published)], published * numpy.float32(0.5) + published * numpy.float32(0.25))

    def test_what_is_saved_has_been_said(self):
        self.assertIn(6, self.same(saves, "late 1", resumed=streams_on)["waited"])  # a fragment was on its way out there

    def test_the_arena_is_not_said_to_be_whole_before_it_is(self):
        with FakeAgent(loop("torch"), environment={"LATE_GPU": "late 1"}) as agent:
            told = Script(agent)
            agent.lay_out(fragments=2, before_ready=lambda: told.orders(1_000_000, (1, 0, 3, 1_000_000)))
            self.assertEqual(agent.link.receive(60), {"type": "preparing", "what": "doing its first step", "data": None})
            self.assertIsNone(agent.link.receive(2))  # its copy runs only when it is waited for, and there are steps to do
            self.assertFalse(agent.arena.any())
            self.assertEqual(agent.stop(), 0, agent.text())
            waited = json.loads(agent.text().splitlines()[-1][4:])["waited"]
            self.assertEqual(len(set(waited)), 1, waited)  # where it left
            self.assertGreater(waited[0], 10)


class Orders(unittest.TestCase):
    def test_an_order_begins_once_and_ends_once(self):
        with FakeAgent(loop("begins")) as agent:
            agent.lay_out()
            orders = dict(publish=[dict(round=1, fragment=0, step=1, evaluate_local=False)])
            agent.link.send("plan", until_step=2, merge=[dict(round=1, fragment=0, step=3, alpha=0.0, evaluate=False, parameters=False)], **orders)
            published = agent.expect("published")
            self.assertEqual((published["step"], published["steps"], published["loss"], published["norm"]), (1, 1, 0.5, 2.0))
            self.assertEqual(agent.metrics, {"accuracy": 0.25})
            numpy.testing.assert_array_equal(agent.arena[:2], [7, 7])
            agent.link.send("result", round=1, fragment=0, applied=True)
            agent.link.send("plan", until_step=3, publish=[], merge=[])
            self.assertEqual(agent.expect("merged")["step"], 3)
            self.assertEqual(
                agent.expect("failed")["why"],
                "told: only copies and reports, and saves where the agent says so, can go on beside other orders; no order has begun that has not ended: each ends once; "
                "no order is in hand: each is answered once; no order has begun that has not ended: each ends once; nothing can be done",
            )


if __name__ == "__main__":
    unittest.main(verbosity=2)
