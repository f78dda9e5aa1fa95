"""The product of two matrices in fp32."""

import torch

sizes = {
    "shown": [{"m": 32, "n": 32, "k": 64}],
    "hidden": [{"m": 33, "n": 17, "k": 50}, {"m": 1, "n": 7, "k": 129}],
}


def inputs(generator, m, n, k):
    return {"a": torch.randn(m, k, generator=generator), "b": torch.randn(k, n, generator=generator)}


def reference(a, b):
    return a @ b
