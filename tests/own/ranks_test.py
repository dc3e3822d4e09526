"""Trainers of several processes that share a model (DDP, FSDP2): against an agent's end of the island link, and on two islands of the real
executable. Exit status 4: nothing can be tested here; PyTorch older than 2.4 says so (debian13.sh runs this with Debian 13's).

    ranks_test.py LIBRARY.so [ATOLL LINEAR]
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

from islands import ATOLL, HAS_TORCH, HERE, SOURCE, TORCH_PYTHON, Clusters, loop

import numpy
from fake_agent import FakeAgent
from atoll.ranks import free_port
from gpu_test import Script, comes_early


def torch_version():
    code = "import torch; print(torch.__version__)"
    said = subprocess.run([*TORCH_PYTHON, "-c", code], capture_output=True, text=True)
    return tuple(int(part) for part in said.stdout.split(".")[:2]) if said.returncode == 0 else (0, 0)


HAS_FSDP2 = torch_version() >= (2, 4)
needs_fsdp2 = unittest.skipUnless(HAS_FSDP2, "PyTorch is older than 2.4: FSDP2 is tested by tests/own/debian13.sh")


class Placement:
    """What box_of() asks a placement for."""

    def __init__(self, dim=None):
        self.dim = dim


Shard, Replicate, Partial, _StridedShard = (type(name, (Placement,), {}) for name in ("Shard", "Replicate", "Partial", "_StridedShard"))


class Mesh:
    def __init__(self, sizes, at):
        self.sizes, self.at = sizes, at

    def size(self, dimension):
        return self.sizes[dimension]

    def get_coordinate(self):
        return self.at


class Sharded:
    """What box_of() asks a DTensor for; its own shard has the shape that torch.chunk would give it, or `has`."""

    def __init__(self, shape, placements, sizes, at, has=None):
        import torch

        self.shape, self.placements, self.device_mesh, self._has = shape, placements, Mesh(sizes, at), has
        self.torch = torch

    def dim(self):
        return len(self.shape)

    def detach(self):
        return self

    def to_local(self):
        own = self.torch.empty(self.shape)
        for placement, size, at in zip(self.placements, self.device_mesh.sizes, self.device_mesh.at):
            if placement.dim is not None:
                parts = own.chunk(size, placement.dim)
                own = parts[at] if at < len(parts) else own.narrow(placement.dim, 0, 0)
        return self.torch.empty(self._has) if self._has else own


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (apt-get install python3-torch)")
class Boxes(unittest.TestCase):
    CASES = [  # shape, placements, mesh
        ((7, 5), [Shard(0)], [2]),  # uneven
        ((3, 7), [Shard(0)], [4]),  # one rank has nothing
        ((5,), [Shard(0)], [4]),
        ((6, 4), [Shard(-1)], [4]),
        ((7, 5), [Shard(0), Shard(1)], [2, 2]),  # FSDP over rows, tensor-parallel columns
        ((7, 5), [Replicate(), Shard(0)], [2, 2]),  # replicas of shards
        ((2, 3, 4), [Shard(2)], [3]),
    ]

    def test_every_element_is_one_rank_s_to_write(self):
        from atoll._shards import box_of

        for shape, placements, sizes in self.CASES:
            with self.subTest(shape=shape, mesh=sizes):
                written = numpy.zeros(shape, int)
                for at in numpy.ndindex(*sizes):
                    tensor = Sharded(shape, placements, sizes, at)
                    box = box_of("w", tensor, 0)
                    self.assertEqual(tuple(tensor.to_local().shape), box.length)
                    if box.writes:
                        written[tuple(slice(a, a + n) for a, n in zip(box.start, box.length))] += 1
                self.assertTrue((written == 1).all(), written)

    def test_what_cannot_be_copied_right_is_refused_by_name(self):
        from atoll._shards import box_of

        for placements, has in (([Partial()], None), ([_StridedShard(0)], None), ([Shard(0)], (5, 5))):
            with self.subTest(placements=placements, has=has), self.assertRaisesRegex(ValueError, "parameter 'h.0.weight'"):
                box_of("h.0.weight", Sharded((7, 5), placements, [2], (0,), has), 0)


@unittest.skipUnless(torch_version() > (0, 0), "PyTorch is not installed (apt-get install python3-torch)")
class Groups(unittest.TestCase):
    def test_who_waits_for_another_rank_names_it_and_its_agent_hears_it(self):
        def of(rank):
            group = {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo",
                     "USE_LIBUV": "0"}  # which Debian 13's PyTorch is built without
            return {**os.environ, **group}

        for rank, waits in ((0, "atoll: rank 0 waits for rank 1 of 2 (WORLD_SIZE)"), (1, "atoll: rank 1 waits for rank 0 of 2 (WORLD_SIZE) at 127.0.0.1:")):
            process = subprocess.Popen(loop("torch"), env=of(rank), stderr=subprocess.PIPE, text=True)
            try:
                self.assertIn(waits, next(line for line in process.stderr if line.startswith("atoll:")))
            finally:
                process.kill()
                process.communicate()
        with FakeAgent(loop("torch"), environment=of(0)) as agent:
            self.assertEqual(agent.expect("preparing")["what"], "waiting for rank 1 of 2 (WORLD_SIZE)")
            agent.process.kill()

    def test_end_while_their_threads_let_go_of_tensors(self):
        said = subprocess.run(loop("ends_groups"), capture_output=True, text=True, timeout=120)
        self.assertEqual((said.returncode, said.stdout), (0, "ended\n"), said.stderr)


@needs_fsdp2
class FullyShard(unittest.TestCase):
    def rounds(self, name="fsdp", ranks=2, save=None, resume=None, first=1, count=2, others_at="", late=""):
        with FakeAgent(loop(name, ranks), resume=resume, environment={"OTHERS_ARE_AT": others_at, "LATE_GPU": late}) as agent:
            agent.lay_out(fragments=2)
            said = [agent.round(number, 4 * number, alpha=0.5, save=save) for number in range(first, first + count)]
            parameters = agent.parameters()
            self.assertEqual(agent.stop(), 0, agent.text())
            self.metrics = agent.metrics
        return said, parameters

    def test_shards_are_copied_as_the_whole_model_would_be_and_go_on_bit_for_bit(self):
        folder = os.path.join(tempfile.mkdtemp(), "trainer")
        _, alone = self.rounds("torch", ranks=1)
        said, both = self.rounds(save=folder)
        numpy.testing.assert_allclose(alone, both, atol=1e-5)
        self.assertAlmostEqual(said[0][0]["norm"], self.metrics["norm_3"], places=5)  # as the program itself has gathered it
        self.assertEqual(sorted(os.listdir(folder)), ["atoll-counts.json", "rank-0.pt", "rank-1.pt"])
        _, whole = self.rounds(count=3)
        _, resumed = self.rounds(first=3, count=1, resume={"directory": folder, "step": 8, "position": 48})
        numpy.testing.assert_array_equal(whole, resumed)

    def test_ranks_on_another_machine_go_through_one_of_theirs(self):
        _, here = self.rounds(ranks=3, count=1)
        _, there = self.rounds(ranks=3, count=1, others_at="another machine")
        numpy.testing.assert_array_equal(here, there)

    def test_shards_on_a_gpu_are_copied_beside_the_steps(self):
        """With late_gpu.py's stand-in for copies; the steps run at once."""
        for others_at in ("", "another machine"):
            with self.subTest(others_at=others_at):
                said, here = self.rounds(ranks=3, count=1, others_at=others_at)
                said_late, late = self.rounds(ranks=3, count=1, others_at=others_at, late="copies 1")
                numpy.testing.assert_array_equal(here, late)
                self.assertEqual([message["loss"] for message in said[0][:2]], [message["loss"] for message in said_late[0][:2]])
                self.assertEqual(said[0][0]["norm"], said_late[0][0]["norm"])

    def test_shards_of_a_result_are_on_their_way_to_the_gpu_before_its_step(self):
        ends = []
        for late in ("", "copies 1"):
            with FakeAgent(loop("fsdp", 2), environment={"OTHERS_ARE_AT": "another machine", "LATE_GPU": late}) as agent:
                told = Script(agent)
                steps = comes_early(told, "")
                agent.lay_out(fragments=2, before_ready=lambda: next(steps))
                next(steps, None)
                ends.append([*told.arenas, agent.parameters()])
                self.assertEqual(agent.stop(), 0, agent.text())
                self.assertEqual(agent.text().count('"fetched": [4, 4]'), 2 if late else 0, agent.text())  # by both ranks
        for before, then in zip(*ends):
            numpy.testing.assert_array_equal(before, then)


class JustSaved:
    """True where both islands have written the checkpoint of one round, the second or later, since the last look, which was a moment ago: whoever is
    killed now comes back with what that round ended with, while after the next commit it may not have saved yet."""

    def __init__(self, folder):
        self.folder, self.before, self.looked = pathlib.Path(folder), [], 0.0

    def __call__(self):
        rounds = [
            max((int(path.name) for path in self.folder.glob(f"state/{island}/runs/*/checkpoints/*") if path.name.isdigit()), default=0)
            for island in ("island-1", "island-2")
        ]
        now = time.monotonic()
        just = rounds != self.before and rounds[0] == rounds[1] >= 2 and now - self.looked < 0.4
        self.before, self.looked = rounds, now
        return just


@unittest.skipUnless(ATOLL, "the executable is not given")
class RanksOfExamples(Clusters):
    """The examples on two islands of two ranks: each rank is killed once, its whole group comes back, and the run ends with the same bits."""

    def any_may_be_killed(self, name):
        launch = f"{shlex.join(TORCH_PYTHON)} -m atoll.ranks 2 '{SOURCE}/examples/pytorch/{name}.py'"
        digests = []
        for rank in (None, 0, 1):
            with self.subTest(rank=rank), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "run.toml")
                # Twice as long as the example: at 8 steps a second 7 s are left after the second checkpoint, however late it is seen.
                text = (SOURCE / f"examples/pytorch/{name}.toml").read_text()
                self.assertIn("\nsteps = 40\n", text)
                text = text.replace("\nsteps = 40\n", "\nsteps = 80\n")
                path.write_text(text.replace("[training]\n", "[training]\nmax_steps_per_second = 8\n") if rank is not None else text)
                process = self.start(folder, str(path), "--trainer", f"{name}={launch}")
                if rank is not None:
                    self.kill_rank(process, name + ".py", rank, JustSaved(folder))
                run = self.completed(process)["run"]
                self.assertEqual((run["state"], run["members"] is not None), ("completed", True))
                if rank is not None:
                    logs = "".join(log.read_text() for log in pathlib.Path(folder).glob("state/*.log"))
                    self.assertIn("started again", logs + json.dumps(run))
                digests.append(run["digest"])
        self.assertEqual(len(set(digests)), 1, digests)

    def test_ddp(self):
        self.any_may_be_killed("ddp")

    @needs_fsdp2
    def test_fsdp(self):
        self.any_may_be_killed("fsdp")


if __name__ == "__main__":
    if not HAS_TORCH:
        print("skipped: PyTorch is not installed (apt-get install python3-torch)")
        sys.exit(4)
    unittest.main(verbosity=2)
