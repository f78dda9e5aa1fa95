import torch

sizes = {"shown": [{"m": 8, "n": 64}], "hidden": [{"m": 5, "n": 101}, {"m": 1, "n": 2}]}
outputs = ("logits",)


def inputs(generator, m, n):
    target = torch.randint(0, n, (m,), generator=generator)
    target[torch.rand(m, generator=generator) < 0.2] = -100
    return {
        "logits": torch.randn(m, n, generator=generator),
        "target": target,
        "grad": torch.randn(m, generator=generator),
    }


def reference(logits, target, grad):
    kept = target != -100
    probabilities = torch.softmax(logits, dim=1)
    hot = torch.arange(logits.shape[1])[None, :] == target[:, None]
    return torch.where(kept[:, None], (probabilities - hot.to(logits.dtype)) * grad[:, None], 0.0)
