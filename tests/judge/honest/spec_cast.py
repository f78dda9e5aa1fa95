import torch

sizes = {
    "shown": [{"n": 1024, "dtype": "float16"}, {"n": 300, "dtype": "bfloat16"}],
    "hidden": [{"n": 301, "dtype": "float32"}, {"n": 17, "dtype": "float64"}],
}


def inputs(generator, n, dtype):
    return {"x": torch.randn(n, generator=generator), "dtype": dtype}


def reference(x, dtype):
    return x.to(getattr(torch, dtype))
