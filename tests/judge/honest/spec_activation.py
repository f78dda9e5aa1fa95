import torch

sizes = {
    "shown": [{"n": 256, "kind": "relu", "inverted": False}, {"n": 256, "kind": "leaky", "inverted": False}],
    "hidden": [{"n": 131, "kind": "relu", "inverted": True}, {"n": 1, "kind": "leaky", "inverted": True}],
}


def inputs(generator, n, kind, inverted):
    return {"x": torch.randn(n, generator=generator), "kind": kind, "inverted": inverted, "slope": 0.125}


def reference(x, kind, inverted, slope):
    x = -x if inverted else x
    return torch.relu(x) if kind == "relu" else torch.where(x > 0, x, x * slope)
