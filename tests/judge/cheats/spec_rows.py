"""Twice each row, plus a bias; inputs come in all layouts."""

import torch

sizes = {"shown": [{"m": 8, "n": 64}], "hidden": [{"m": 5, "n": 37}]}
layouts = ("padded", "strided", "transposed", "offset")
distributions = ("normal", "with zeros")


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator), "bias": torch.randn(n, generator=generator)}


def reference(x, bias):
    return x * 2 + bias
