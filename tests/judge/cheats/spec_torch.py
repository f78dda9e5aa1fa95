"""A row over its largest magnitude; all of torch is allowed."""

import torch

allow = "torch"
sizes = {"shown": [{"m": 8, "n": 64}], "hidden": [{"m": 5, "n": 77}, {"m": 1, "n": 1}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator) + 0.01}


def reference(x):
    return x / (1 + x.abs().amax(1, keepdim=True))
