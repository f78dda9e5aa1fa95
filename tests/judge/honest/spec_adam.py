import torch

sizes = {"shown": [{"n": 512}], "hidden": [{"n": 1}, {"n": 333}]}
outputs = ("p", "m", "v")
distributions = ("normal", "uniform", "sorted", "integers")


def inputs(generator, n):
    def drawn():
        return torch.randn(n, generator=generator)

    return {"p": drawn(), "g": drawn(), "m": drawn(), "v": drawn().abs(), "lr": 1e-3, "step": 10}


def reference(p, g, m, v, lr, step):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return p - lr * (m / (1 - 0.9**step)) / (torch.sqrt(v / (1 - 0.99**step)) + 1e-8), m, v
