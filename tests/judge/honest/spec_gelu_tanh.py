import torch

sizes = {
    "shown": [{"n": 1024, "dtype": "float16"}, {"n": 1000, "dtype": "bfloat16"}],
    "hidden": [{"n": 331, "dtype": "float32"}],
}


def inputs(generator, n, dtype):
    return {"x": torch.randn(n, generator=generator).to(getattr(torch, dtype))}


def reference(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
