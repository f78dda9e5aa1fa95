import torch

sizes = {"shown": [{"batch": 4, "channels": 8, "length": 32}], "hidden": [{"batch": 3, "channels": 5, "length": 17}]}
changes = ("running_mean", "running_var")


def inputs(generator, batch, channels, length):
    x = torch.randn(batch, channels, length, generator=generator)
    mean, var = torch.randn(channels, generator=generator), torch.rand(channels, generator=generator)
    return {"x": x, "running_mean": mean, "running_var": var, "momentum": 0.1}


def reference(x, running_mean, running_var, momentum):
    mean, var = x.mean((0, 2)), x.var((0, 2), correction=0)
    y = (x - mean[None, :, None]) / torch.sqrt(var[None, :, None] + 1e-5)
    return y, mean, var
