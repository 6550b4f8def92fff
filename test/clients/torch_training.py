"""Trains a model for three steps, the last in bfloat16, as any training script does, and prints what it allocated:

    sim/run python test/clients/torch_training.py gpt|resnet

Exit status 1 if memory is left where a step ends that was not there at the end of the step before."""
import sys
import time

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
        return self.head(self.blocks(self.embedding(tokens) + self.position)).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                                  nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if stride != 1 or width != out else nn.Identity()

    def forward(self, x):
        return functional.relu(self.body(x) + self.skip(x))


def resnet():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        layers.append(Residual(width, out, stride))
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


MODELS = {
    "gpt": (GPT, lambda: torch.randint(0, 1000, (4, 128)), lambda: torch.randint(0, 1000, (512,))),
    "resnet": (resnet, lambda: torch.zeros(8, 3, 224, 224), lambda: torch.randint(0, 1000, (8,))),
}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    make, inputs, labels = MODELS[sys.argv[1]]
    model = make().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    held = []
    for step in range(3):
        begin = time.time()
        x, y = inputs().pin_memory().cuda(non_blocking=True), labels().cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=step == 2):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del x, y, loss
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
        print(f"step {step}: {time.time() - begin:.2f} s, {held[-1] / 2**20:.1f} MiB held")
    print(f"peak: {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB allocated, "
          f"{torch.cuda.max_memory_reserved() / 2**20:.1f} MiB reserved, backend {torch.cuda.memory.get_allocator_backend()}")
    if held[2] > held[1]:
        print(f"memory was left behind: {held}")
    return 1 if held[2] > held[1] else 0


if __name__ == "__main__":
    sys.exit(main())
