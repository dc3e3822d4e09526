"""The built-in language model as a trainer of one's own in PyTorch: the same initial parameters, data order, optimiser and schedule, from
their descriptions in agent/trainer. own_test.py compares its losses with the built-in trainer's. settings: layers, width, heads.
"""

import math

import atoll.torch
import numpy
import torch
from torch.nn import functional as F

U64 = (1 << 64) - 1


def mix(value):
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & U64
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & U64
    return value ^ (value >> 31)


def stream_of(name, number=0):
    digest = 0xCBF29CE484222325
    for byte in name.encode() + number.to_bytes(8, "little"):
        digest = (digest ^ byte) * 0x100000001B3 & U64
    digest = (digest ^ (digest >> 33)) * 0xFF51AFD7ED558CCD & U64
    return digest ^ (digest >> 33)


def philox(seed, stream, blocks):
    """The first `blocks` blocks of the stream, as 64-bit numbers."""
    low, high = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    block = numpy.arange(blocks, dtype=numpy.uint64)
    counter = [block & low, block >> high, numpy.full(blocks, stream & 0xFFFFFFFF, numpy.uint64), numpy.full(blocks, stream >> 32, numpy.uint64)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = numpy.uint64(0xD2511F53) * counter[0], numpy.uint64(0xCD9E8D57) * counter[2]
        counter = [(second >> high) ^ counter[1] ^ numpy.uint64(key[0]), second & low, (first >> high) ^ counter[3] ^ numpy.uint64(key[1]), first & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack([counter[0] | (counter[1] << high), counter[2] | (counter[3] << high)], 1).reshape(-1)


def normals(seed, stream, count):
    uniform = (philox(seed, stream, count) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
    return numpy.sqrt(-2 * numpy.log(1 - uniform[0::2])) * numpy.cos(2 * numpy.pi * uniform[1::2])


class Order:
    """Where the window of a number begins (agent/trainer/data/data_order.cpp)."""

    def __init__(self, tokens, fraction, length, batch, seed):
        count = training = tokens - math.floor(tokens * fraction)
        fitting = (count - 1) // length
        self.windows, self.length = fitting - 1 if fitting > 1 and fitting > batch else fitting, length
        self.slack = count - 1 - self.windows * length
        self.key = mix(mix(seed + 0x9E3779B97F4A7C15 & U64) ^ stream_of("data-order", 0))
        self.held_out = (training, tokens - training)

    def window(self, number):
        turn, index = divmod(number, self.windows)
        key = mix((self.key + turn) & U64)
        phase = next(int(draw) % (self.slack + 1) for draw in philox(key, stream_of("phase"), 8) if int(draw) >= (1 << 64) % (self.slack + 1))
        return phase + self.permuted(key, index) * self.length

    def permuted(self, key, value):
        half = 1 if self.windows <= 1 else ((self.windows - 1).bit_length() + 1) // 2
        mask = (1 << half) - 1
        while True:
            left, right = value >> half, value & mask
            for turn in range(8):
                left, right = right, left ^ (mix((key + mix((right + (turn << 32)) & U64)) & U64) & mask)
            value = left << half | right
            if value < self.windows:
                return value

    def held_out_windows(self, most):
        available = (self.held_out[1] - 1) // self.length
        count = min(available, most)
        return [self.held_out[0] + (i * (available // count) + i * (available % count) // count) * self.length for i in range(count)]


def build(layers, width, seed, vocabulary=256):
    feed = ((8 * width + 2) // 3 + 31) // 32 * 32
    shapes = {"model.embed_tokens.weight": (vocabulary, width)}
    for layer in range(layers):
        name = f"model.layers.{layer}."
        shapes[name + "input_layernorm.weight"] = (width,)
        shapes.update({name + f"self_attn.{part}_proj.weight": (width, width) for part in "qkvo"})
        shapes[name + "post_attention_layernorm.weight"] = (width,)
        shapes.update({name + f"mlp.{part}_proj.weight": (feed, width) for part in ("gate", "up")})
        shapes[name + "mlp.down_proj.weight"] = (width, feed)
    shapes.update({"model.norm.weight": (width,), "lm_head.weight": (vocabulary, width)})
    parameters = {}
    for name, shape in shapes.items():
        values = numpy.ones(shape, numpy.float32)
        if len(shape) > 1:
            deviation = 0.02 / (math.sqrt(2 * layers) if name.endswith(("o_proj.weight", "down_proj.weight")) else 1)
            values = (deviation * normals(seed, stream_of(name), values.size)).astype(numpy.float32).reshape(shape)
        parameters[name] = torch.nn.Parameter(torch.from_numpy(values))
    return parameters


class Twin(torch.nn.Module):
    def __init__(self, layers, width, heads, length, seed):
        super().__init__()
        self.layers, self.heads = layers, heads
        self.names = build(layers, width, seed)
        for name, parameter in self.names.items():
            self.register_parameter(name.replace(".", "/"), parameter)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0 ** (-2 * torch.arange(width // heads // 2, dtype=torch.float64) / (width // heads))
        self.cosine, self.sine = angle.cos().float(), angle.sin().float()
        self.mask = torch.full((length, length), -math.inf).triu(1)

    def turn(self, x):
        first, second = x.chunk(2, -1)
        return torch.cat([first * self.cosine - second * self.sine, second * self.cosine + first * self.sine], -1)

    def forward(self, tokens):
        p, (n, t) = self.names, (tokens.shape[0], tokens.shape[1] - 1)
        norm = lambda x, name: x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * p[name]  # noqa: E731
        x = p["model.embed_tokens.weight"][tokens[:, :-1]]
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            y = norm(x, name + "input_layernorm.weight")
            q, k, v = ((y @ p[name + f"self_attn.{part}_proj.weight"].t()).view(n, t, self.heads, -1).transpose(1, 2) for part in "qkv")
            scores = self.turn(q) @ self.turn(k).transpose(2, 3) / math.sqrt(q.shape[3]) + self.mask
            x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, -1) @ p[name + "self_attn.o_proj.weight"].t()
            y = norm(x, name + "post_attention_layernorm.weight")
            gate, up = (y @ p[name + f"mlp.{part}_proj.weight"].t() for part in ("gate", "up"))
            x = x + (F.silu(gate) * up) @ p[name + "mlp.down_proj.weight"].t()
        logits = norm(x, "model.norm.weight") @ p["lm_head.weight"].t()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    island = atoll.torch.join()
    settings, training, data = island.settings, island.training, island.configuration["data"]
    length, batch = training["sequence_length"], training["batch"]
    text = torch.from_numpy(numpy.concatenate([numpy.fromfile(file, numpy.uint8) for file in island.files]).astype(numpy.int64))
    order = Order(len(text), data["validation_fraction"], length, batch, island.seed)
    windows = lambda starts: torch.stack([text[start : start + length + 1] for start in starts])  # noqa: E731
    model = Twin(settings["layers"], settings["width"], settings["heads"], length, island.seed)
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False))
    groups = [{"params": matrices, "weight_decay": training["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, betas=(training["beta1"], training["beta2"]), eps=training["epsilon"])
    held_out = windows(order.held_out_windows(training["evaluate_batches"] * batch))
    island.start(model, opt, evaluate=lambda: sum(model(rows) * len(rows) for rows in held_out.split(batch)) / len(held_out))
    warmup, steps, peak, last = (training[key] for key in ("warmup_steps", "steps", "learning_rate", "final_learning_rate"))
    for step in island.steps():
        done = (step + 1 - warmup) / (steps - warmup)
        rate = peak * (step + 1) / warmup if step + 1 < warmup else peak * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * min(done, 1))))
        for group in opt.param_groups:
            group["lr"] = rate
        loss = model(windows(order.window(island.share.sample(island.position + i)) for i in range(batch)))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip_norm"])
        opt.step()
        island.done(loss, samples=batch)


if __name__ == "__main__":
    main()
