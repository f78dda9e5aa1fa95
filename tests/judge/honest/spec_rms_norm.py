import torch

sizes = {
    "shown": [{"m": 8, "n": 256, "dtype": "bfloat16"}],
    "hidden": [{"m": 5, "n": 201, "dtype": "float16"}, {"m": 1, "n": 1, "dtype": "float32"}],
}


def inputs(generator, m, n, dtype):
    kind = getattr(torch, dtype)
    return {"x": torch.randn(m, n, generator=generator).to(kind), "weight": torch.rand(n, generator=generator).to(kind)}


def reference(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
