import torch

sizes = {
    "shown": [{"shape": "4x5"}],
    "hidden": [{"shape": ""}, {"shape": "1"}, {"shape": "0x3"}, {"shape": "3x1x7"}],
}


def inputs(generator, shape):
    return {"x": torch.randn([int(part) for part in shape.split("x") if part], generator=generator)}


def reference(x):
    return x * x + 1
