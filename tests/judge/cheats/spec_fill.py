"""Twice a tensor into an argument that the candidate fills, and the signs into another one."""

import torch

outputs = ("out", "sign")
sizes = {"shown": [{"n": 1024}], "hidden": [{"n": 999}, {"n": 2}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator), "out": torch.zeros(n), "sign": torch.zeros(n, dtype=torch.int32)}


def reference(x):
    return {"out": x * 2, "sign": (x > 0).int()}
