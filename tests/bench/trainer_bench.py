"""The built-in trainer against the same model as anybody writes it in PyTorch, in turn, on this machine.

trainer_bench.py BENCH_TRAINER [--repeats 9] [--compile] [--device cpu] [--layers N] [--width N] [--batch N] [--sequence-length N] [--threads N] [--steps N]

BENCH_TRAINER is the built program of that name, which trains --steps steps for each line that it reads. The Python that runs this has
PyTorch: eager, with scaled_dot_product_attention, rms_norm, a fused AdamW, and autocast to bf16 on a GPU; compiled with --compile. Both
count the tokens of their own steps. The ratio is of medians of repeats, of which the first is to warm up."""
import argparse
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench_trainer")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    for name, value in (("threads", 1), ("layers", 4), ("width", 128), ("batch", 16), ("sequence-length", 128), ("steps", 5)):
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self, width, heads, feed_forward):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = torch.nn.RMSNorm(width, 1e-5), torch.nn.RMSNorm(width, 1e-5)
        self.qkv, self.output = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.gate_up, self.down = torch.nn.Linear(width, 2 * feed_forward, bias=False), torch.nn.Linear(feed_forward, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

        def turned(y):
            first, second = y.chunk(2, -1)
            return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1).to(v.dtype)

        mixed = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, layers, width, length, vocabulary=256):
        super().__init__()
        heads = max(1, width // 32)
        feed_forward = (8 * width // 3 + 31) // 32 * 32
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads, feed_forward) for _ in range(layers))
        self.norm, self.head = torch.nn.RMSNorm(width, 1e-5), torch.nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens):
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens[:, 1:].flatten())


class Plain:
    """PyTorch's loop."""

    def __init__(self, options):
        torch.set_num_threads(options.threads)
        self.options = options
        self.model = Model(options.layers, options.width, options.sequence_length).to(options.device)
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.loss = torch.compile(self.model) if options.compile else self.model
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.text = torch.randint(256, (4 << 20,), dtype=torch.uint8)

    def step(self):
        length = self.options.sequence_length + 1
        starts = torch.randint(len(self.text) - length, (self.options.batch,))
        tokens = torch.stack([self.text[at : at + length] for at in starts]).long().to(self.options.device)
        self.optimiser.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.options.device.startswith("cuda")):
            loss = self.loss(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return loss

    def tokens_per_second(self):
        begin = time.perf_counter()
        for _ in range(self.options.steps):
            loss = self.step()
        loss.item()  # all of it is done
        return self.options.steps * self.options.batch * self.options.sequence_length / (time.perf_counter() - begin)


class BuiltIn:
    """bench_trainer's process."""

    def __init__(self, options):
        given = [f"--{name.replace('_', '-')}={getattr(options, name)}".split("=") for name in
                 ("device", "threads", "layers", "width", "batch", "sequence_length", "steps")]
        self.process = subprocess.Popen([options.bench_trainer, *sum(given, [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline().strip()

    def tokens_per_second(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    options = arguments()
    ours, plain = BuiltIn(options), Plain(options)
    print(ours.said)
    print(f"PyTorch {torch.__version__}, {'compiled' if options.compile else 'eager'}, {plain.parameters:,} parameters", flush=True)
    rates = []
    for repeat in range(options.repeats + 1):
        sides = [ours, plain] if repeat % 2 else [plain, ours]  # who goes first changes
        rate = {side: side.tokens_per_second() for side in sides}
        if repeat:
            rates.append((rate[ours], rate[plain]))
            print(f"{repeat:3} built-in {rate[ours]:12,.0f} tokens/s, PyTorch {rate[plain]:12,.0f}, ratio {rate[ours] / rate[plain]:.3f}", flush=True)
    print(f"median ratio {statistics.median(a / b for a, b in rates):.3f}")
    ours.process.stdin.close()
    return ours.process.wait()


if __name__ == "__main__":
    sys.exit(main())
