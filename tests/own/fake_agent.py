"""An agent's end of the island link for tests: one island whose rounds have its own contribution, halved, as their result."""

import json
import os
import shutil
import subprocess
import tempfile

import numpy
from plain_trainer import Pair

PATIENCE = 200  # seconds for a message; importing PyTorch takes long on a busy machine


class FakeAgent:
    def __init__(self, command, settings=None, payload="parameters", resume=None, environment=None, steps=100, beside=False):
        self.folder = tempfile.mkdtemp()
        self.metrics = {}  # the newest that it said, by name
        path = os.path.join(self.folder, "link")
        self.link = Pair(path, bind=True)
        self.output = open(os.path.join(self.folder, "output"), "w+")
        self.process = subprocess.Popen(
            command, env={**os.environ, "ATOLL_ISLAND_LINK": path, **(environment or {})}, stdout=self.output, stderr=subprocess.STDOUT
        )
        self.hello = self.expect("hello")
        training = dict(
            steps=steps, batch=1, sequence_length=2, accumulation=1, learning_rate=1e-3, warmup_steps=0, final_learning_rate=0.1,
            weight_decay=0.0, beta1=0.9, beta2=0.95, epsilon=1e-8, clip_norm=1.0, max_steps_per_second=0.0, device="cpu",
            precision="float32", threads=1, evaluate_batches=1,
        )  # fmt: skip
        self.link.send(
            "configure", run="r-1", island="a", seed=1, training=training, payload=payload, resume=resume,
            trainer={"name": "x", "ranks": 0, "tokens_per_sample": 2, "settings": settings or {}},
            data={"files": [], "format": "bytes", "validation_fraction": 0.05, "part": 0, "parts": 2}, saves_beside=beside,
        )  # fmt: skip

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def expect(self, *kinds):
        """The next message that is no progress."""
        while True:
            message = self.link.receive(PATIENCE)
            if message is not None and message["type"] == "metrics":
                self.metrics.update({metric["name"]: metric["value"] for metric in message["values"]})
                continue
            if message is None or (message["type"] not in kinds and message["type"] not in ("progress", "preparing", "enough")):
                raise AssertionError(f"{kinds} was due, not {json.dumps(message)}; the trainer said: {self.text()}")
            if message["type"] in kinds:
                return message

    def lay_out(self, fragments=1, before_ready=lambda: None):
        """before_ready: sends what the trainer is to find when it asks for its first order."""
        self.manifest = self.expect("manifest")
        parameters, at, entries, self.fragments = self.manifest["parameters"], 0, [], []
        each = -(-len(parameters) // fragments)
        for first in range(0, len(parameters), each):
            at = begin = -(-at // 16) * 16
            for index in range(first, min(first + each, len(parameters))):
                entries.append({"parameter": index, "offset": at})
                at += int(numpy.prod(parameters[index]["shape"]))
            self.fragments.append({"offset": begin, "count": at - begin})
        path = os.path.join(self.folder, "arena")
        numpy.zeros(at, numpy.float32).tofile(path)
        self.arena = numpy.memmap(path, numpy.float32, "r+")
        self.link.send("arena", path=path, bytes=4 * at, entries=entries, fragments=self.fragments)
        before_ready()
        self.ready = self.expect("ready")

    def parameters(self):
        """All of them, as the trainer has them now."""
        self.link.send("publish_now", fragments=list(range(len(self.fragments))))
        self.expect("published_now")
        return self.arena.copy()

    def round(self, number, steps, alpha=0.0, gradient=False, save=None):
        """Orders the round after so many steps, answers it, and returns what was said."""
        numbers = range(len(self.fragments))
        self.link.send(
            "plan",
            until_step=steps,
            publish=[dict(round=number, fragment=f, step=steps, evaluate_local=False) for f in numbers],
            merge=[
                dict(round=number, fragment=f, step=steps, alpha=alpha, evaluate=f == 0, parameters=gradient, save=save if f == numbers[-1] else None)
                for f in numbers
            ],
        )
        said = [self.expect("published") for _ in numbers]
        self.arena *= numpy.float32(0.5)
        for fragment in numbers:
            self.link.send("result", round=number, fragment=fragment, applied=True)
        return said + [self.expect("merged") for _ in numbers]

    def stop(self):
        """The exit status of the trainer."""
        self.link.send("stop", why="over")
        return self.process.wait(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *given):
        self.process.kill()
        self.process.wait()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
