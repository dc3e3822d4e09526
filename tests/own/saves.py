"""A state that is written beside the steps, by a program whose writes wait for a gate (gated.py). Tests of own_test.py."""

import collections
import os
import pathlib
import tempfile
import unittest

from islands import HERE, PYTHON, needs_torch

import numpy
from fake_agent import FakeAgent


class Saving:
    """An agent with the program, and its folder."""

    def __init__(self, kind, how="", beside=True, resume=None):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = self._folder.name
        os.mkfifo(self.folder + "/gate")
        self.to = self.folder + "/trainer"
        command = [PYTHON, str(HERE / "gated.py"), self.folder, kind, how]
        self.agent = FakeAgent(command, beside=beside, resume=resume)
        self.agent.lay_out()

    def plan(self, *rounds, save=None):
        """Rounds of four steps."""
        self.agent.link.send(
            "plan", until_step=4 * rounds[-1],
            publish=[dict(round=r, fragment=0, step=4 * r, evaluate_local=False) for r in rounds],
            merge=[dict(round=r, fragment=0, step=4 * r, alpha=0.0, evaluate=False, parameters=False, save=save and f"{save}{r}") for r in rounds],
        )  # fmt: skip

    def give(self, number):
        self.agent.expect("published")
        self.agent.arena *= numpy.float32(0.5)
        self.agent.link.send("result", round=number, fragment=0, applied=True)
        return self.agent.expect("merged", "published")

    def open_gate(self):
        with open(self.folder + "/gate", "w") as pipe:
            pipe.write("go")

    def __enter__(self):
        return self

    def __exit__(self, *given):
        self.agent.__exit__()
        self._folder.cleanup()


class Saves(unittest.TestCase):
    def goes_on(self, kind):
        with Saving(kind) as whole:
            whole.plan(1, 2)
            whole.give(1)
            whole.give(2)
            expected = whole.agent.parameters()
        with Saving(kind) as first:
            first.plan(1, save=first.to)
            merged = first.give(1)
            self.assertEqual((merged["saving"], merged["saved"], merged["save_error"]), (True, False, None))
            first.plan(2)
            merged = first.give(2)  # four steps later, and the write has not begun
            self.assertEqual((merged.get("saving"), os.path.exists(first.to + "1")), (None, False))
            first.open_gate()
            said = first.agent.expect("saved")
            self.assertEqual((said["directory"], said["step"], said["error"]), (first.to + "1", 4, None))
            resume = {"directory": first.to + "1", "step": 4, "position": said["position"]}
            with Saving(kind, resume=resume) as second:
                second.plan(2)
                second.give(2)
                numpy.testing.assert_array_equal(expected, second.agent.parameters())

    def test_numpy_s_steps_go_on_and_what_is_saved_is_of_its_moment(self):
        self.goes_on("numpy")

    @needs_torch
    def test_torch_s_steps_go_on_and_what_is_saved_is_of_its_moment(self):
        self.goes_on("torch")

    def test_one_is_written_at_a_time(self):
        with Saving("numpy") as it:
            it.plan(1, 2, save=it.to)
            self.assertTrue(it.give(1)["saving"])
            it.agent.expect("published")
            it.agent.link.send("result", round=2, fragment=0, applied=True)
            it.agent.link.send("evaluate")  # is answered behind the merge, which waits for the first write
            it.open_gate()
            self.assertEqual(it.agent.expect("merged", "saved")["type"], "saved")
            self.assertTrue(it.agent.expect("merged")["saving"])
            it.open_gate()
            said = [it.agent.expect("saved", "evaluated") for _ in range(2)]
            self.assertEqual([one["directory"] for one in said if one["type"] == "saved"], [it.to + "2"])
            self.assertEqual([sorted(os.listdir(it.to + number)) for number in "12"], [["atoll-counts.json", "state.pickle"]] * 2)

    def test_a_state_that_is_written_at_once_is_said_behind_its_merge(self):
        with Saving("numpy", "quick") as it:
            it.plan(1, save=it.to)
            self.assertTrue(it.give(1)["saving"])
            self.assertEqual(it.agent.expect("saved")["directory"], it.to + "1")

    def test_the_end_waits_for_it(self):
        with Saving("numpy") as it:
            it.plan(1, save=it.to)
            it.give(1)
            it.agent.link.send("stop", why="over")
            it.open_gate()
            self.assertEqual(it.agent.process.wait(60), 0, it.agent.text())
            self.assertEqual(sorted(os.listdir(it.to + "1")), ["atoll-counts.json", "state.pickle"])

    def test_a_kill_in_the_middle_leaves_what_was_saved_before(self):
        with Saving("numpy") as it:
            it.plan(1, save=it.to)
            it.give(1)
            it.open_gate()
            it.agent.expect("saved")
            before = pathlib.Path(it.to + "1", "state.pickle").read_bytes()
            it.plan(2, save=it.to)
            self.assertTrue(it.give(2)["saving"])
            it.agent.process.kill()
            it.agent.process.wait()
            self.assertEqual((pathlib.Path(it.to + "1", "state.pickle").read_bytes(), os.path.exists(it.to + "2")), (before, False))

    def test_a_full_disk_is_told_and_the_steps_go_on(self):
        with Saving("numpy", "disk") as it:
            it.plan(1, save=it.to)
            it.give(1)
            it.open_gate()
            self.assertIn("No space left on device", it.agent.expect("saved")["error"])
            self.assertEqual((os.path.exists(it.to + "1"), os.path.exists(it.to + "1.writing")), (False, False))
            it.plan(2)
            self.assertEqual(it.give(2)["type"], "merged")

    def test_what_the_program_did_wrong_ends_it(self):
        with Saving("numpy", "bad") as it:
            it.plan(1, save=it.to)
            it.give(1)
            it.open_gate()
            self.assertEqual(it.agent.expect("saved")["error"], "it cannot be pickled")
            self.assertEqual(it.agent.expect("failed")["why"], "TypeError: it cannot be pickled")

    def test_an_agent_that_does_not_know_of_it_has_it_before_the_merge(self):
        with Saving("numpy", beside=False) as it:
            it.plan(1, save=it.to)
            it.agent.expect("published")
            it.agent.link.send("result", round=1, fragment=0, applied=True)
            it.open_gate()
            merged = it.agent.expect("merged")
            self.assertEqual((merged["saved"], merged.get("saving"), os.path.exists(it.to + "1")), (True, None, True))

    @needs_torch
    def test_a_copy_has_nothing_of_what_changes_later(self):
        import torch
        from atoll._captured import Captured

        base = torch.arange(6.0)
        module = torch.nn.Linear(2, 2)
        given = {
            "twice": [base, base], "view": base.view(2, 3).t()[1:], "numbers": numpy.arange(3), "deep": {"a": (1, [2.5, "x", None])},
            "module": module.state_dict(), "parameter": module.weight, "object": collections.Counter("aab"), "half": base.bfloat16(), "empty": base[:0],
        }  # fmt: skip
        expected = {key: value.tolist() for key, value in given.items() if hasattr(value, "tolist")}
        captured = Captured(given)
        base.zero_(), given["numbers"].fill(0), given["deep"]["a"][1].clear(), given["object"].clear(), given["half"].zero_()
        weight = module.weight.detach().clone()
        with torch.no_grad():
            module.weight.zero_()
        got = captured.take()
        self.assertEqual({key: got[key].tolist() for key in expected}, expected)
        self.assertEqual((got["deep"], got["object"]), ({"a": (1, [2.5, "x", None])}, collections.Counter("aab")))
        self.assertIs(got["twice"][0], got["twice"][1])
        self.assertEqual(got["twice"][0].tolist(), [0, 1, 2, 3, 4, 5])
        self.assertIs(type(got["parameter"]), torch.nn.Parameter)
        self.assertTrue(torch.equal(got["module"]["weight"], weight))
        self.assertEqual(got["module"]._metadata, given["module"]._metadata)

