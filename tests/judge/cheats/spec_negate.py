"""The negative of a tensor."""

import torch

sizes = {"shown": [{"n": 1024}], "hidden": [{"n": 999}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator)}


def reference(x):
    return -x
