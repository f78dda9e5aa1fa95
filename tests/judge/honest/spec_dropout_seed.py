"""Dropout whose mask follows from a seed by Philox 4x32, ten rounds, as tl.rand has it."""

import torch

sizes = {"shown": [{"n": 1024, "seed": 123}], "hidden": [{"n": 1000, "seed": 7}, {"n": 1, "seed": 99}]}
_LOW = 0xFFFFFFFF


def inputs(generator, n, seed):
    return {"x": torch.randn(n, generator=generator), "p": 0.5, "seed": seed}


def _product(constant, x):
    low, high = (x & 0xFFFF) * constant, (x >> 16) * constant
    middle = (low >> 16) + high
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def _philox(seed, offsets):
    c0, c1, c2, c3 = offsets, torch.zeros_like(offsets), torch.zeros_like(offsets), torch.zeros_like(offsets)
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(10):
        high_a, low_a = _product(0xD2511F53, c0)
        high_b, low_b = _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return c0


def reference(x, p, seed):
    bits = _philox(seed, torch.arange(x.numel()))
    signed = torch.where(bits >= 2**31, bits - 2**32, bits)
    uniform = torch.where(signed < 0, -signed - 1, signed).double() * 4.6566127342e-10
    return torch.where(uniform > p, x / (1 - p), 0.0)
