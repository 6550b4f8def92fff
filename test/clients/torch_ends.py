"""Ends right after a backward pass, of which a thread of PyTorch's then still gives up what it used:

    sim/run python test/clients/torch_ends.py

What that thread waits for ends with Python. Where the end is not quiet, the exit status is 134, though not each time."""
import torch

x = torch.ones(4, device="cuda", requires_grad=True)
y = x * 2
y.register_hook(lambda gradient: None)
y.sum().backward()
print("ended right after a backward pass")
