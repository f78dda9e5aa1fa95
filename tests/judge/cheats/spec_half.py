"""A matrix, transposed and cast to fp16."""

import torch

sizes = {"shown": [{"m": 16, "n": 64}], "hidden": [{"m": 7, "n": 33}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    return x.T.half().contiguous()
