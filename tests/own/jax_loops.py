"""A program over JAX, optax and flax's nnx: `jax_loops.py line|linen|counts [STEPS FOLDER]`. Run by jax_test.py."""

import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import jax
import numpy
import optax
from flax import nnx

import atoll.jax as atoll

SAMPLES, BATCH = 240, 6


def row(number):
    draw = numpy.random.default_rng(number)
    values = draw.standard_normal(4).astype("f4")
    return values, values.sum() + numpy.float32(0.01 * draw.standard_normal())


def rows_of(numbers):
    values, wanted = zip(*(row(number) for number in numbers))
    return numpy.stack(values), numpy.array(wanted)


class Line(nnx.Module):
    """With what is no parameter: statistics of a batch, a key, a count."""

    def __init__(self, rngs):
        self.first, self.norm, self.drop, self.last = nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs), nnx.Dropout(0.05, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, values):
        return self.last(self.drop(nnx.tanh(self.norm(self.first(values)))))[:, 0]


def loss_of(model, values, wanted):
    return ((model(values) - wanted) ** 2).mean()


@nnx.jit
def train_step(model, optimizer, values, wanted):
    loss, gradients = nnx.value_and_grad(loss_of)(model, values, wanted)
    optimizer.update(model, gradients)
    return loss


def line(steps=None, folder=None):
    island = atoll.join({"folder": folder, "pause": 0.0}, steps=steps, every=10, folder=folder and folder + "/kept")
    folder = island.settings["folder"]
    model = Line(nnx.Rngs(1 + island.part))  # of its own numbers, each island
    optimizer = nnx.Optimizer(model, optax.inject_hyperparams(optax.adamw)(learning_rate=0.01), wrt=nnx.Param)
    checks = rows_of(range(1000, 1064))

    def held_out(state):
        one = nnx.merge(nnx.graphdef(model), state)
        one.eval()
        return loss_of(one, *checks)

    state, kept = island.start(nnx.state(model), nnx.state(optimizer), evaluate=held_out, buffers="mean")
    nnx.update(model, state)
    nnx.update(optimizer, kept)
    data = island.dataset(range(SAMPLES))
    counted = int(nnx.state(model)["drop"]["rngs"]["count"][...])
    if not min(island.step, 1) <= counted <= island.step:  # the newest checkpoint may be a round behind the parameters
        sys.exit(f"the random numbers go on at {counted}, and the run at step {island.step}")
    with open(f"{folder}/{island.name}.steps", "a", buffering=1) as out:
        while island.running:
            rate = 0.01 * max(0.02, 1 - island.step / island.training["steps"])
            optimizer.opt_state.hyperparams["learning_rate"][...] = rate
            numbers = data.at(island.position, BATCH)
            passes = [island.share.sample(island.position + place) // SAMPLES for place in range(BATCH)]
            out.write(json.dumps({"step": island.step, "rate": rate, "position": island.position, "samples": numbers, "passes": passes}) + "\n")
            model.train()
            loss = train_step(model, optimizer, *rows_of(numbers))
            nnx.update(model, island.exchange(nnx.state(model), loss, samples=BATCH, state=nnx.state(optimizer)))
            time.sleep(island.settings["pause"])
    kept = {name: numpy.array(leaf) for name, leaf in zip(*atoll._flatten(nnx.state(model))) if "rngs" not in name}
    numpy.savez(f"{folder}/{island.name}.npz", loss=held_out(nnx.state(model)), complete=island.complete, first=island.first, **kept)


def counts(steps=None, folder=None):
    """An integer among the parameters."""
    island = atoll.join(steps=3)
    island.start({"weights": jax.numpy.ones(2), "seen": jax.numpy.array(3)})


def linen(steps=None, folder=None):
    """Variables as linen has them, with a key among them; statistics of a batch are this island's own without buffers=."""
    island = atoll.join(steps=3)
    given = {"params": {"w": jax.numpy.ones(2)}, "batch_stats": {"mean": jax.numpy.zeros(2)}, "key": jax.random.key(7)}
    tree, _ = island.start(given)
    while island.running:
        drawn = jax.random.normal(tree["key"], (2,))
        tree = {**tree, "batch_stats": {"mean": tree["batch_stats"]["mean"] + 1}, "key": jax.random.split(tree["key"])[0], "params": {"w": drawn}}
        tree = island.exchange(tree, 1.0, samples=1)
    print(float(tree["batch_stats"]["mean"][0]), jax.random.key_data(tree["key"]).tolist())


if __name__ == "__main__":
    {"line": line, "linen": linen, "counts": counts}[sys.argv[1]](*[int(word) if word.isdecimal() else word for word in sys.argv[2:]])
