"""Islands of x86-64 and of ARM (in QEMU) train one model: the same bits in every round, with every codec, outer optimiser and strategy.

    aarch64_test.py LIBRARY.so ATOLL LINEAR ROOM      ROOM has atoll and linear for aarch64, which run here: tests/own/aarch64.sh sees to both
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import unittest

ROOM = pathlib.Path(sys.argv.pop(4)).resolve()

from islands import ATOLL, LINEAR, PATIENCE, Agents  # noqa: E402

ISLANDS = {"cedar": False, "fir": False, "palm": True, "date": True}  # whether it is of ARM
DILOCO = "name = 'diloco'\ninner_steps = 10\n"
SHARED = {  # islands keep the same outer parameters and the same momentum
    "diloco, f32": DILOCO,
    **{
        f"diloco, {codec}, rounded {rounding}": f"{DILOCO}codec = '{codec}'\nreduce_codec = '{codec}'\nrounding = '{rounding}'\n"
        for codec in ("bf16", "int8", "fp4")
        for rounding in ("nearest", "stochastic")
    },
    "fp4 with error feedback and zstd": DILOCO + "codec = 'fp4'\nerror_feedback = true\npacking = 'zstd'\n",
    **{f"outer {optimizer}": f"{DILOCO}outer_optimizer = '{optimizer}'\n" for optimizer in ("heavy-ball", "sgd", "clipped-momentum")},
    "momentum in bf16": DILOCO + "outer_state = 'bf16'\n",
    **{aggregator: f"{DILOCO}aggregator = '{aggregator}'\n" for aggregator in ("trimmed-mean", "radial-directional")},
    "streaming-diloco": "name = 'streaming-diloco'\ninner_steps = 10\nfragments = 2\ngrouping = 'balanced'\n",
    "decoupled-diloco": "name = 'decoupled-diloco'\nfragments = 1\nquorum = 4\n",
    "data-parallel": "name = 'data-parallel'\ncodec = 'int8'\n",
}
OWN = {  # each island has parameters or a momentum of its own between the rounds; what is summed is the same
    "eager-diloco": "name = 'eager-diloco'\ninner_steps = 10\n",
    "co2": "name = 'co2'\ninner_steps = 10\n",
    "noloco": "name = 'noloco'\ninner_steps = 10\nfinal_merge = true\n",
}


class Machines(Agents):
    def setUp(self):
        super().setUp()
        for name, is_arm in ISLANDS.items():
            token = self.said("token", "create", "-q", "--state", self.state("coordinator"))
            words = ["agent", "--state", self.state(name), "--name", name, "--bind", "tcp://127.0.0.1:*", "--trainer", "linear=attach", "--join", token]
            with open(self.state(name) + ".log", "a") as log:
                self.running[name] = subprocess.Popen([str(ROOM / "atoll") if is_arm else ATOLL, *words], stdout=log, stderr=log)

    def train(self, island):
        """A trainer of the island's machine joins for one run, as QEMU keeps no processes together that an agent starts."""
        path = pathlib.Path(self.state(island), "trainers/linear")
        self.wait_until(path.exists)
        with socket.socket(socket.AF_UNIX) as joined:
            joined.connect(str(path))
            link = joined.makefile().readline().strip()
            program = str(ROOM / "linear") if ISLANDS[island] else LINEAR
            done = subprocess.run([program], env={**os.environ, "ATOLL_ISLAND_LINK": link}, capture_output=True, text=True, timeout=PATIENCE)
            return done.returncode, done.stderr

    def states_of(self, run):
        """Of each round with a checkpoint, by island: the digest of all results up to it, and that of its outer parameters and momentum."""
        rounds = {}
        for name in ISLANDS:
            for folder in pathlib.Path(self.state(name), "runs", run, "checkpoints").glob("[0-9]*"):
                meta = json.loads((folder / "meta.json").read_text())
                state = hashlib.sha256((folder / "outer.safetensors").read_bytes()).hexdigest()
                rounds.setdefault(int(folder.name), {})[name] = (meta["digest"], state)
        return rounds

    def rounds_of(self, name, strategy):
        """Runs it on all islands; the states of the rounds of which all have kept theirs."""
        path = pathlib.Path(self.state("run.toml"))
        path.write_text(
            f"[run]\nname = '{name}'\n[trainer]\nname = 'linear'\n[trainer.settings]\nrate = 0.02\n[training]\nsteps = 40\n"
            f"[strategy]\n{strategy}[islands]\nmin = 4\nmax = 4\n[checkpoint]\nevery_rounds = 1\nkeep = 100\n"
        )
        run = self.said("submit", "-q", str(path), "--state", self.state("coordinator"))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            self.assertEqual(list(pool.map(self.train, ISLANDS)), [(0, "")] * len(ISLANDS))
        self.waited(run)
        # What stands in for a trainer goes with its run: the next run's trainer is not to meet that of this one.
        self.wait_until(lambda: not any(pathlib.Path(self.state(island), "trainers/linear").exists() for island in ISLANDS))
        rounds = self.states_of(run)
        return {number: found for number, found in rounds.items() if len(found) == len(ISLANDS)}

    def test_the_same_bits_in_every_round(self):
        for number, (what, strategy) in enumerate(SHARED.items()):
            with self.subTest(what):
                rounds = self.rounds_of(f"shared-{number}", strategy)
                for each, found in rounds.items():
                    self.assertEqual(len(set(found.values())), 1, f"round {each}: {found}")
                self.assertGreaterEqual(len(rounds), 3)
                print(f"{what}: {len(rounds)} rounds alike", flush=True)

    def test_the_same_sums_where_islands_have_states_of_their_own(self):
        for number, (what, strategy) in enumerate(OWN.items()):
            with self.subTest(what):
                rounds = self.rounds_of(f"own-{number}", strategy)
                last = {digest for digest, _ in rounds[max(rounds)].values()}
                self.assertEqual(len(last), 1, rounds[max(rounds)])
                print(f"{what}: the digest after {max(rounds)} rounds is alike", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
