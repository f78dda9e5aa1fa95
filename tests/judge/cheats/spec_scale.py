"""A tensor times a number, and another one added; hidden sizes have strided inputs, inside of their memory."""

import torch

sizes = {
    "shown": [{"n": 1024, "step": 1, "offset": 0}, {"n": 4096, "step": 1, "offset": 0}],
    "hidden": [
        {"n": 1000, "step": 1, "offset": 0},
        {"n": 1500, "step": 2, "offset": 3},
        {"n": 1, "step": 1, "offset": 1},
        {"n": 0, "step": 1, "offset": 0},
    ],
}


def inputs(generator, n, step, offset):
    memory = torch.randn(n * step + offset, generator=generator)
    return {"x": memory[offset::step], "y": torch.randn(n, generator=generator), "factor": 0.37}


def reference(x, y, factor):
    return x * factor + y
