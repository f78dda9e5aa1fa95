import torch

sizes = {
    "shown": [
        {"heads": 2, "length": 32, "dim": 16, "causal": False},
        {"heads": 1, "length": 32, "dim": 16, "causal": True},
    ],
    "hidden": [
        {"heads": 1, "length": 37, "dim": 16, "causal": True},
        {"heads": 1, "length": 1, "dim": 16, "causal": False},
    ],
}


def inputs(generator, heads, length, dim, causal):
    q, k, v = (torch.randn(heads, length, dim, generator=generator) for _ in range(3))
    return {"q": q, "k": k, "v": v, "scale": dim**-0.5, "causal": causal}


def reference(q, k, v, scale, causal):
    scores = (q @ k.transpose(1, 2)) * scale
    if causal:
        n = q.shape[1]
        scores = torch.where(torch.arange(n)[:, None] >= torch.arange(n)[None, :], scores, float("-inf"))
    return torch.softmax(scores, -1) @ v
