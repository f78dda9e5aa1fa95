import torch

sizes = {"shown": [{"n": 512}], "hidden": [{"n": 1}, {"n": 1023}]}


def inputs(generator, n):
    def drawn(low, high, dtype):
        return torch.randint(low, high, (n,), generator=generator, dtype=dtype)

    return {
        "a": drawn(-(2**31), 2**31 - 1, torch.int32),
        "b": drawn(0, 255, torch.uint8),
        "c": drawn(-(2**62), 2**62, torch.int64),
    }


def reference(a, b, c):
    return (a ^ b.int()) & 0x7FFF, b // 3 + b % 5, c * 3 - (c >> 7)
