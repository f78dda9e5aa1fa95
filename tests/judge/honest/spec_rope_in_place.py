import torch

sizes = {"shown": [{"length": 4, "heads": 6, "dim": 16}], "hidden": [{"length": 3, "heads": 2, "dim": 12}]}
outputs = ("Q",)


def inputs(generator, length, heads, dim):
    angle = torch.rand(1, 1, length, dim // 2, generator=generator) * 6
    return {"Q": torch.randn(2, length, heads, dim, generator=generator), "cos": angle.cos(), "sin": angle.sin()}


def reference(Q, cos, sin):
    half = Q.shape[-1] // 2
    one, two = Q[..., :half], Q[..., half:]
    c, s = cos[0, 0][:, None, :], sin[0, 0][:, None, :]
    return torch.cat((one * c - two * s, two * c + one * s), -1)
