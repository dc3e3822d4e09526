"""Parts of the Python package by themselves, and programs without an agent. Tests of own_test.py."""

import contextlib
import difflib
import importlib.util
import io
import os
import socket
import subprocess
import sys
import tempfile
import unittest

from islands import HERE, PACKAGE, PYTHON, SOURCE

import numpy


class Pieces(unittest.TestCase):
    def test_blocks_follow_the_names(self):
        from atoll._island import blocks_of

        names = ["wte.weight", "h.0.a", "h.0.b", "h.10.a", "norm.weight"]
        self.assertEqual(blocks_of(names), [-1, 0, 0, 1, 2])
        self.assertEqual(blocks_of(["w", "b"]), [0, 0])

    def test_parts_are_disjoint_and_whole_and_ordered_by_position(self):
        from atoll import Alone, Dataset, Island

        parts = [Dataset(range(11), Island(Alone({"data": {"part": part, "parts": 3}}), {})) for part in range(3)]
        every_third = (part.indices(0, count) for part, count in zip(parts, (4, 4, 3)))
        self.assertEqual(sorted(sum(every_third, [])), list(range(11)))
        whole = parts[0].indices(0, 20)
        self.assertEqual(parts[0].indices(7, 5), whole[7:12])
        self.assertNotEqual(whole[:4], whole[4:8])

    def test_a_share_follows_what_is_dealt_and_leaves_nothing_out(self):
        from atoll._share import Share

        def stretch(begin, numbers, following):
            return {"from": begin, "classes": [{"number": n, "next": following.get(n, 0)} for n in numbers]}

        # Two islands; from their sixth sample on a third one has a class of each, at what these had taken of it by then.
        shares = [
            Share({"classes": 6, "stretches": [stretch(0, [0, 1, 2], {}), stretch(6, [0, 1], {0: 2, 1: 2})]}),
            Share({"classes": 6, "stretches": [stretch(0, [3, 4, 5], {}), stretch(6, [3, 4], {3: 2, 4: 2})]}),
            Share({"classes": 6, "stretches": [stretch(0, [2, 5], {2: 2, 5: 2})]}),
        ]
        taken = [share.sample(position) for share, count in zip(shares, (10, 10, 4)) for position in range(count)]
        self.assertEqual(sorted(taken), list(range(24)))
        self.assertEqual([shares[0].sample(position) for position in range(8)], [0, 1, 2, 6, 7, 8, 12, 13])
        late = Share({"classes": 4, "stretches": [stretch(0, [1, 3], {1: 5, 3: 3})]})  # who lags behind is first
        self.assertEqual([late.sample(position) for position in range(5)], [15, 19, 21, 23, 25])
        self.assertEqual(Share({"part": 1, "parts": 3}).sample(4), 13)  # nothing is dealt

    def test_an_evaluation_that_fails_ends_no_training(self):
        from atoll import Alone, NumpyIsland

        island, said = NumpyIsland(Alone({}), {}), io.StringIO()
        for fails in (lambda: 1 / 0, lambda: "no number", lambda: (0.5, {"accuracy": "none"})):
            island._evaluate = fails
            with contextlib.redirect_stderr(said):
                self.assertEqual(island._evaluated(), {"loss": None, "batches": 0})
        self.assertIn("the training goes on without its loss", said.getvalue())
        self.assertIn("ZeroDivisionError: division by zero", said.getvalue())

    def test_who_waits_for_an_agent_says_for_what(self):
        code = "import sys, atoll; atoll.join(path=sys.argv[1])"
        with tempfile.TemporaryDirectory() as folder:
            for name, why in (("missing", "which is not there"), ("closed", "where nobody listens"), ("x" * 120, "and a socket's path at most 107: start the agent with a shorter --state"), ("", "is no agent's socket, STATE/trainers/NAME, but a folder")):
                path = os.path.join(folder, name)
                if name == "closed":
                    with socket.socket(socket.AF_UNIX) as closed:
                        closed.bind(path)
                program = subprocess.Popen([PYTHON, "-c", code, path], stderr=subprocess.PIPE, text=True)
                lines = iter(program.stderr.readline, "")
                self.assertTrue(any(why in line for line in lines), why)
                program.kill()
                program.wait()
                program.stderr.close()

    def test_alone(self):
        code = "import atoll; i = atoll.join({'size': 3, 'rate': 1}); print(i.settings, i.part, i.parts)"
        environment = {key: value for key, value in os.environ.items() if key != "ATOLL_ISLAND_LINK"}
        said = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, "{'size': 3, 'rate': 1} 0 1\n")

    def test_alone_it_ends_after_the_steps_that_it_says(self):
        code = """import atoll, numpy
i = atoll.join(steps=3)
i.start({"w": numpy.zeros(2)})
print(i.training, [(step, i.done(1.0, samples=4))[0] for step in i.steps()], i.position)"""
        environment = {key: value for key, value in os.environ.items() if key != "ATOLL_ISLAND_LINK"}
        said = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(said.stdout, "{'steps': 3} [0, 1, 2] 12\n", said.stderr)

    def test_the_page_is_enough_in_250_lines(self):
        self.assertLessEqual(len((HERE / "plain_trainer.py").read_text().splitlines()), 250)

    def test_a_script_changes_by_ten_lines(self):
        read = lambda name: (SOURCE / "examples/pytorch" / name).read_text().splitlines()  # noqa: E731
        alone, island = [[line.strip() for line in read(name)] for name in ("gpt_alone.py", "gpt.py")]  # the loop moves into a with block
        added = [line for line in difflib.ndiff(alone[1:], island[1:]) if line.startswith("+ ")]
        self.assertLessEqual(len(added), 10)

    def test_pip_installs_without_a_network(self):
        with tempfile.TemporaryDirectory() as target:
            sys.path.insert(0, str(PACKAGE))
            import build_backend

            wheel = build_backend.build_wheel(target)
            command = [PYTHON, "-m", "pip", "install", "--no-index", "--no-deps", "-q", "--target", target + "/site", f"{target}/{wheel}"]
            if importlib.util.find_spec("pip") is None:
                self.skipTest("pip is not installed")
            subprocess.run(command, check=True, env={**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"})
            self.assertTrue(os.path.exists(target + "/site/atoll/torch.py"))
