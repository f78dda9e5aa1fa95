import torch

sizes = {
    "shown": [{"batch": 2, "channels": 2, "filters": 4, "size": 6, "kernel": 3}],
    "hidden": [
        {"batch": 1, "channels": 3, "filters": 3, "size": 7, "kernel": 3, "stride": 2},
        {"batch": 1, "channels": 1, "filters": 1, "size": 4, "kernel": 1, "padding": 0},
    ],
}


def inputs(generator, batch, channels, filters, size, kernel, stride=1, padding=1):
    return {
        "x": torch.randn(batch, channels, size, size + 1, generator=generator),
        "weight": torch.randn(filters, channels, kernel, kernel, generator=generator),
        "bias": torch.randn(filters, generator=generator),
        "stride": stride,
        "padding": padding,
    }


def reference(x, weight, bias, stride, padding):
    return torch.nn.functional.conv2d(x, weight, bias, stride=stride, padding=padding)
