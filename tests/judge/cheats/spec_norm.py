"""The layer norm of rows."""

import torch

sizes = {"shown": [{"m": 8, "n": 128}], "hidden": [{"m": 5, "n": 100}, {"m": 2, "n": 1}]}


def inputs(generator, m, n):
    return {
        "x": torch.randn(m, n, generator=generator),
        "weight": torch.ones(n),
        "bias": torch.zeros(n),
        "eps": 1e-5,
    }


def reference(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, eps)
