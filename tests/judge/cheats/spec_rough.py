"""A product that may be computed in fp8: the specification states a tolerance."""

import torch

sizes = {"shown": [{"m": 16, "n": 16, "k": 64}], "hidden": [{"m": 5, "n": 9, "k": 33}]}
distributions = ("normal", "uniform")
tolerance = {"rtol": 0.1, "atol": 2.0}


def inputs(generator, m, n, k):
    return {"a": torch.randn(m, k, generator=generator).half(), "b": torch.randn(k, n, generator=generator).half()}


def reference(a, b):
    return a @ b
