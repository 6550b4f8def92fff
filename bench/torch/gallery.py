"""Trains one model of the gallery on batches whose sizes change from step to step, and prints what it held at most:

    sim/run python bench/torch/gallery.py gpt|resnet|diffusion [STACK]

With a STACK, weir is PyTorch's allocator. Prints `PEAK,RESERVED,CONTEXT` in bytes: what tensors asked for at most, what
the allocator held of the device at most, and what the context takes. Exit status 3 if memory ran out."""
import os
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "test" / "clients"))
from models import KINDS  # noqa: E402

STEPS = 24
# What the model is made with; the batches, and the lengths or the pictures' sides, that a step draws from.
GALLERY = {
    "gpt": ({"words": 50257, "width": 768, "layers": 12, "heads": 12, "length": 1024}, (1, 2, 4, 6), range(128, 1025)),
    "resnet": ({"stages": (3, 4, 6, 3)}, (16, 32, 48, 64), range(128, 289, 8)),
    "diffusion": ({"width": 128}, (8, 16, 24, 32), range(32, 97, 8)),
}


def train(name):
    kind = KINDS[name]
    sizes, batches, lengths = GALLERY[name]
    draw = random.Random(7)
    with torch.device("cuda"):  # made there, since nobody reads the values
        model = kind.make(**sizes)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        inputs, target = kind.data(draw.choice(batches), draw.choice(lengths))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = kind.loss(model(*(i.cuda() for i in inputs)), target.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


def main():
    name, *stack = sys.argv[1:]
    if stack:
        import weir.torch
        weir.torch.install(stack[0], extension=True)
    context = torch.cuda.mem_get_info()
    try:
        train(name)
    except torch.cuda.OutOfMemoryError:
        os._exit(3)
    stats = torch.cuda.memory_stats()
    print(f"{stats['requested_bytes.all.peak']},{stats['reserved_bytes.all.peak']},{context[1] - context[0]}", flush=True)


if __name__ == "__main__":
    main()
