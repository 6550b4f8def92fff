"""Trains a model for three steps, the last in bfloat16, as any training script does, and prints what it allocated:

    sim/run python test/clients/torch_training.py gpt|resnet|diffusion

Exit status 1 if memory is left where a step ends that was not there at the end of the step before."""
import sys
import time

import torch

from models import KINDS

SIZES = {"gpt": (4, 128), "resnet": (8, 224), "diffusion": (4, 32)}  # of a batch, and of what is in it


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    kind = KINDS[sys.argv[1]]
    model = kind.make().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    held = []
    for step in range(3):
        begin = time.time()
        inputs, target = kind.data(*SIZES[sys.argv[1]])
        x, y = [i.pin_memory().cuda(non_blocking=True) for i in inputs], target.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=step == 2):
            loss = kind.loss(model(*x), y)
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
