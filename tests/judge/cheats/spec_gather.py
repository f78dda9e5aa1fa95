"""Rows of a table by integers."""

import torch

sizes = {
    "shown": [{"rows": 64, "columns": 32, "count": 16}],
    "hidden": [{"rows": 100, "columns": 37, "count": 11}, {"rows": 5, "columns": 3, "count": 1}],
}


def inputs(generator, rows, columns, count):
    index = torch.randint(rows, (count,), generator=generator)
    return {"table": torch.randn(rows, columns, generator=generator), "index": index}


def reference(table, index):
    return table[index]
