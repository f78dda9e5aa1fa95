import torch

sizes = {"shown": [{"m": 6, "n": 100}], "hidden": [{"m": 3, "n": 37}]}
outputs = ("loss", "logits")
distributions = ("normal", "uniform", "large", "integers")


def inputs(generator, m, n):
    target = torch.randint(n, (m,), generator=generator)
    target[0] = -100
    return {"logits": torch.randn(m, n, generator=generator), "target": target, "loss": torch.zeros(m)}


def reference(logits, target, loss):
    keep = target != -100
    safe = target.clamp(min=0)
    gradient = torch.softmax(logits, 1)
    gradient[torch.arange(len(target)), safe] -= 1
    per_row = torch.logsumexp(logits, 1) - logits.gather(1, safe[:, None])[:, 0]
    return {"loss": per_row * keep, "logits": gradient * keep[:, None]}
