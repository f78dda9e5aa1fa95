import torch

sizes = {
    "shown": [{"batch": 2, "channels": 8, "space": 16, "groups": 4}],
    "hidden": [
        {"batch": 1, "channels": 6, "space": 9, "groups": 2},
        {"batch": 1, "channels": 2, "space": 5, "groups": 1},
    ],
}


def inputs(generator, batch, channels, space, groups):
    x = torch.randn(batch, channels, space, generator=generator)
    return {"x": x, "weight": torch.randn(channels, generator=generator), "groups": groups}


def reference(x, weight, groups):
    return torch.nn.functional.group_norm(x, groups, weight, None, 1e-5)
