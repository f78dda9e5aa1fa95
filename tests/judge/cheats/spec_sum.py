"""The sum of each row."""

import torch

sizes = {
    "shown": [{"m": 16, "n": 128}],
    "hidden": [{"m": 5, "n": 1000}, {"m": 70, "n": 1031}, {"m": 3, "n": 1}, {"m": 0, "n": 4}],
}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    return x.sum(1)
