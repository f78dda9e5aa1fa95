import torch

sizes = {"shown": [{"m": 8, "n": 100}], "hidden": [{"m": 3, "n": 33}, {"m": 1, "n": 1}]}


def inputs(generator, m, n):
    flags = torch.rand(m, n, generator=generator) < 0.05
    return {"flags": flags, "values": torch.randint(-100, 100, (m, n), generator=generator, dtype=torch.int8)}


def reference(flags, values):
    return flags.any(1), flags.all(1), values.to(torch.int64).sum(1), (values != 0).sum(1, dtype=torch.int32)
