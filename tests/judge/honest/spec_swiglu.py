import torch

sizes = {"shown": [{"m": 4, "n": 256}], "hidden": [{"m": 3, "n": 101}, {"m": 1, "n": 1}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, 2 * n, generator=generator).to(torch.bfloat16)}


def reference(x):
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
