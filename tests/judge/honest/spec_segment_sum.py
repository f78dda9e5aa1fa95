import torch

sizes = {"shown": [{"segments": 8, "n": 100}], "hidden": [{"segments": 5, "n": 37}, {"segments": 1, "n": 1}]}


def inputs(generator, segments, n):
    cuts = torch.randint(0, n + 1, (segments - 1,), generator=generator).sort().values
    starts = torch.cat([torch.tensor([0]), cuts, torch.tensor([n])]).int()
    return {"x": torch.randn(n, generator=generator), "starts": starts}


def reference(x, starts):
    total = torch.cat([torch.zeros(1, dtype=x.dtype), x])
    rows = torch.arange(x.shape[0])
    inside = (rows[None, :] >= starts[:-1, None]) & (rows[None, :] < starts[1:, None])
    return (inside.to(x.dtype) * x[None, :]).sum(1) + 0 * total[0]
