"""The first of equal largest elements counts."""

import torch

sizes = {"shown": [{"m": 8, "n": 128}], "hidden": [{"m": 5, "n": 77}, {"m": 1, "n": 1}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    n = x.shape[1]
    largest = x.amax(1, keepdim=True)
    places = torch.where(x == largest, torch.arange(n), n)
    return largest.squeeze(1), places.amin(1)
