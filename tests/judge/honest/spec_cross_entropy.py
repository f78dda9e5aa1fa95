import torch

sizes = {"shown": [{"m": 8, "n": 64}], "hidden": [{"m": 5, "n": 101}, {"m": 1, "n": 2}]}


def inputs(generator, m, n):
    target = torch.randint(0, n, (m,), generator=generator)
    target[torch.rand(m, generator=generator) < 0.2] = -100
    return {"logits": torch.randn(m, n, generator=generator), "target": target, "ignore_index": -100}


def reference(logits, target, ignore_index):
    return torch.nn.functional.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")
