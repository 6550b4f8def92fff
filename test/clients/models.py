"""Models of plain torch.nn, random data for them, and their losses: what the programs here train, at any size."""
import dataclasses
import typing

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self, words=1000, width=256, layers=4, heads=4, length=128):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens) + self.position[: tokens.shape[1]])).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                                  nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if stride != 1 or width != out else nn.Identity()

    def forward(self, x):
        return functional.relu(self.body(x) + self.skip(x))


def resnet(stages=(2, 2, 2), classes=1000):
    """Of 64 channels, and twice as many from stage to stage."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            out = 64 << stage
            layers.append(Residual(width, out, 2 if stage > 0 and block == 0 else 1))
            width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class Noised(nn.Module):
    """Two convolutions, between which the time step is added."""

    def __init__(self, width, out, time):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, out, 3, 1, 1))
        self.time = nn.Linear(time, out)
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, 1, 1))
        self.skip = nn.Conv2d(width, out, 1) if width != out else nn.Identity()

    def forward(self, x, time):
        return self.second(self.first(x) + self.time(time)[:, :, None, None]) + self.skip(x)


class Attention(nn.Module):
    """Between the places of a picture."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        y = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(y, y, y, need_weights=False)[0].transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """A diffusion model: says which noise was added to a picture by a time step."""

    def __init__(self, width=64, colours=3):
        super().__init__()
        time, widths = 4 * width, (width, 2 * width, 4 * width)
        self.register_buffer("rates", torch.exp(-torch.arange(width // 2) * (9.2 / (width // 2))))
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(colours, width, 3, 1, 1)
        self.down = nn.ModuleList(Noised(a, b, time) for a, b in zip((width, *widths), widths))
        self.smaller = nn.ModuleList(nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1])
        self.middle = nn.ModuleList((Noised(widths[-1], widths[-1], time), Noised(widths[-1], widths[-1], time)))
        self.attention = Attention(widths[-1])
        self.larger = nn.ModuleList(nn.ConvTranspose2d(w, w, 4, 2, 1) for w in widths[:0:-1])
        self.up = nn.ModuleList(Noised(a, b, time) for a, b in
                                ((2 * widths[2], widths[2]), (widths[2] + widths[1], widths[1]), (widths[1] + widths[0], widths[0])))
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, colours, 3, 1, 1))

    def forward(self, x, step):
        angles = step[:, None] * self.rates
        time = self.time(torch.cat((angles.sin(), angles.cos()), 1))
        x, kept = self.first(x), []
        for i, down in enumerate(self.down):
            x = down(x, time)
            kept.append(x)
            if i < len(self.smaller):
                x = self.smaller[i](x)
        x = self.middle[1](self.attention(self.middle[0](x, time)), time)
        for i, up in enumerate(self.up):
            x = up(torch.cat((x, kept.pop()), 1), time)
            if i < len(self.larger):
                x = self.larger[i](x)
        return self.last(x)


def tokens(batch, length):
    return (torch.randint(0, 1000, (batch, length)),), torch.randint(0, 1000, (batch * length,))


def pictures(batch, size):
    return (torch.zeros(batch, 3, size, size),), torch.randint(0, 1000, (batch,))


def noised_pictures(batch, size):
    return (torch.zeros(batch, 3, size, size), torch.rand(batch)), torch.zeros(batch, 3, size, size)


@dataclasses.dataclass(frozen=True)
class Kind:
    make: typing.Callable  # of the model's sizes
    data: typing.Callable  # of a batch and a length, or a picture's side: the inputs, and what is to come out
    loss: typing.Callable


KINDS = {
    "gpt": Kind(GPT, tokens, functional.cross_entropy),
    "resnet": Kind(resnet, pictures, functional.cross_entropy),
    "diffusion": Kind(UNet, noised_pictures, functional.mse_loss),
}
