import torch

sizes = {
    "shown": [{"heads": 2, "length": 64, "causal": True}],
    "hidden": [{"heads": 1, "length": 32, "causal": False}, {"heads": 3, "length": 96, "causal": True}],
}
distributions = ("normal", "uniform", "tiny", "integers", "repeated", "with zeros")


def inputs(generator, heads, length, causal):
    q, k, v = (torch.randn(1, heads, length, 32, generator=generator).half() for _ in range(3))
    return {"q": q, "k": k, "v": v, "scale": 32**-0.5, "causal": causal}


def reference(q, k, v, scale, causal):
    scores = (q @ k.transpose(-1, -2)) * scale
    if causal:
        length = q.shape[-2]
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v
