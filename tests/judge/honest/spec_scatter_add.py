import torch

sizes = {"shown": [{"n": 256, "bins": 10}], "hidden": [{"n": 101, "bins": 7}, {"n": 1, "bins": 1}]}


def inputs(generator, n, bins):
    index = torch.randint(0, bins, (n,), generator=generator, dtype=torch.int32)
    return {"x": torch.randn(n, generator=generator), "index": index, "bins": bins}


def reference(x, index, bins):
    return torch.zeros(bins, dtype=x.dtype).index_add(0, index.long(), x)
