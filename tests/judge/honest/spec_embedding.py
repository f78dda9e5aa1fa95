import torch

sizes = {
    "shown": [{"n": 16, "rows": 50, "dim": 32}],
    "hidden": [{"n": 7, "rows": 11, "dim": 19}, {"n": 1, "rows": 1, "dim": 1}],
}


def inputs(generator, n, rows, dim):
    index = torch.randint(0, rows, (n,), generator=generator)
    return {"table": torch.randn(rows, dim, generator=generator), "index": index}


def reference(table, index):
    return table[index]
