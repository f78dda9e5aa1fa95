import torch

sizes = {
    "shown": [{"groups": 3, "rows": 48, "k": 32, "n": 32}],
    "hidden": [{"groups": 5, "rows": 37, "k": 17, "n": 24}, {"groups": 1, "rows": 2, "k": 16, "n": 1}],
}


def inputs(generator, groups, rows, k, n):
    cuts = torch.randint(rows + 1, (groups - 1,), generator=generator).sort().values
    starts = torch.cat((torch.tensor([0]), cuts, torch.tensor([rows]))).int()
    return {
        "x": torch.randn(rows, k, generator=generator).half(),
        "weights": torch.randn(groups, k, n, generator=generator).half(),
        "starts": starts,
    }


def reference(x, weights, starts):
    places = starts.tolist()
    parts = [x[a:b] @ w for a, b, w in zip(places[:-1], places[1:], weights, strict=True)]
    return torch.cat(parts)
