"""A small GPT in nanoGPT's manner, for the scripts beside this file."""
import math

import torch
from torch.nn import functional as F


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention, self.project = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.attention(self.norm1(x)).split(c, 2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1), float("-inf"))
        x = x + self.project((scores.softmax(3) @ v).transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(torch.nn.Module):
    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(256, width), torch.nn.Embedding(length, width)
        self.h = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 256, bias=False)

    def forward(self, x, y):
        x_ = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.h:
            x_ = block(x_)
        return F.cross_entropy(self.head(self.norm(x_)).flatten(0, 1), y.flatten())
