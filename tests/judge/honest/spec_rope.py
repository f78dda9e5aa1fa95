import torch

sizes = {
    "shown": [{"batch": 1, "length": 16, "heads": 2, "dim": 32}],
    "hidden": [{"batch": 2, "length": 7, "heads": 3, "dim": 16}, {"batch": 1, "length": 1, "heads": 1, "dim": 2}],
}


def inputs(generator, batch, length, heads, dim):
    angles = torch.arange(length).float()[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    x = torch.randn(batch, length, heads, dim, generator=generator)
    return {"x": x, "cos": angles.cos(), "sin": angles.sin()}


def reference(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    c, s = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)
