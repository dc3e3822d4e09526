"""A small network in JAX on an island: parameters go into island.exchange() and come out of it.

    python3 fit.py          alone; on an island: --trainer fit='python3 /srv/fit.py'
"""
import atoll.jax as atoll
import jax
import jax.numpy as jnp

island = atoll.join({"width": 32, "batch": 16, "rate": 0.05, "momentum": 0.9}, steps=200)
settings = island.settings
width, batch = settings["width"], settings["batch"]
first, second = jax.random.split(jax.random.PRNGKey(island.seed))
params = {
    "hidden": {"w": jax.random.normal(first, (4, width)) / 2, "b": jnp.zeros(width)},
    "out": {"w": jax.random.normal(second, (width, 1)) / width**0.5, "b": jnp.zeros(1)},
}
velocity = jax.tree_util.tree_map(jnp.zeros_like, params)


def samples(part, position, count):
    """Which they are follows from the part and the position alone."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(7), part), position)
    x = jax.random.normal(key, (count, 4))
    return x, jnp.sin(x[:, :1]) * x[:, 1:2] + x[:, 2:3]


def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return jnp.mean((hidden @ params["out"]["w"] + params["out"]["b"] - y) ** 2)


@jax.jit
def train_step(params, velocity, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
    velocity = jax.tree_util.tree_map(lambda v, g: settings["momentum"] * v + g, velocity, gradient)
    return jax.tree_util.tree_map(lambda p, v: p - settings["rate"] * v, params, velocity), velocity, loss


held_out = samples(island.parts, 0, 64)
params, velocity = island.start(params, velocity, evaluate=lambda params: loss_of(params, *held_out))
while island.running:
    params, velocity, loss = train_step(params, velocity, *samples(island.part, island.position, batch))
    params = island.exchange(params, loss, samples=batch, state=velocity)
