"""Honest candidates of convolutions."""

from tests.judge.honest.head import HEAD

CONV2D_IMPLICIT_GEMM = (
    HEAD
    + """
@triton.autotune(
    configs=[
        triton.Config({"BLOCK_NHW": 32, "BLOCK_OC": 16, "BLOCK_K": 16}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_NHW": 16, "BLOCK_OC": 16, "BLOCK_K": 32}, num_warps=2, num_stages=3),
    ],
    key=["N", "C", "H", "W", "OC"],
)
@triton.jit
def conv2d_kernel(
    input_ptr, weight_ptr, bias_ptr, output_ptr,
    N, C, H, W, OC, OH, OW,
    stride_in, stride_ic, stride_ih, stride_iw,
    stride_on, stride_oc, stride_oh, stride_ow,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_NHW: tl.constexpr, BLOCK_OC: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pid_nhw = tl.program_id(0)
    pid_oc = tl.program_id(1)
    nhw = pid_nhw * BLOCK_NHW + tl.arange(0, BLOCK_NHW)
    oc = pid_oc * BLOCK_OC + tl.arange(0, BLOCK_OC)
    n = nhw // (OH * OW)
    rest = nhw % (OH * OW)
    oh = rest // OW
    ow = rest % OW
    K = C * KH * KW
    acc = tl.zeros((BLOCK_NHW, BLOCK_OC), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        c = k // (KH * KW)
        kh = (k // KW) % KH
        kw = k % KW
        ih = oh[:, None] * STRIDE - PADDING + kh[None, :]
        iw = ow[:, None] * STRIDE - PADDING + kw[None, :]
        in_mask = (n[:, None] < N) & (k[None, :] < K) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        x = tl.load(
            input_ptr + n[:, None] * stride_in + c[None, :] * stride_ic + ih * stride_ih + iw * stride_iw,
            mask=in_mask, other=0.0,
        )
        w = tl.load(weight_ptr + oc[None, :] * K + k[:, None], mask=(oc[None, :] < OC) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w, allow_tf32=False)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + oc, mask=oc < OC, other=0.0)[None, :]
    out = output_ptr + n[:, None] * stride_on + oc[None, :] * stride_oc
    out += oh[:, None] * stride_oh + ow[:, None] * stride_ow
    tl.store(out, acc, mask=(nhw[:, None] < N * OH * OW) & (oc[None, :] < OC))


def conv2d(x: torch.Tensor, weight: torch.Tensor, bias=None, stride=1, padding=0):
    N, C, H, W = x.shape
    OC, C2, KH, KW = weight.shape
    assert C == C2
    OH = (H + 2 * padding - KH) // stride + 1
    OW = (W + 2 * padding - KW) // stride + 1
    out = torch.empty((N, OC, OH, OW), device=x.device, dtype=x.dtype)
    grid = lambda META: (triton.cdiv(N * OH * OW, META["BLOCK_NHW"]), triton.cdiv(OC, META["BLOCK_OC"]))
    conv2d_kernel[grid](
        x, weight, bias if bias is not None else x, out,
        N, C, H, W, OC, OH, OW,
        *x.stride(), *out.stride(),
        KH=KH, KW=KW, STRIDE=stride, PADDING=padding, HAS_BIAS=bias is not None,
    )
    return out


def solve(x, weight, bias, stride, padding):
    return conv2d(x.contiguous(), weight.contiguous(), bias, stride, padding)
"""
)

CONV2D_DIRECT = (
    HEAD
    + """
@triton.jit
def _conv(x, w, b, y, C, H, W, OH, OW, F, K: tl.constexpr, S: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr):
    image, filter, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32) + tl.load(b + filter)
    for c in range(C):
        for i in tl.static_range(K):
            h = row * S - P + i
            for j in tl.static_range(K):
                v = cols * S - P + j
                inside = (h >= 0) & (h < H) & (v >= 0) & (v < W) & (cols < OW)
                value = tl.load(x + ((image * C + c) * H + h) * W + v, mask=inside, other=0.0)
                total += value * tl.load(w + ((filter * C + c) * K + i) * K + j)
    tl.store(y + ((image * F + filter) * OH + row) * OW + cols, total, mask=cols < OW)


def solve(x, weight, bias, stride, padding):
    n, c, h, w = x.size()
    f, k = weight.size(0), weight.size(2)
    oh, ow = (h + 2 * padding - k) // stride + 1, (w + 2 * padding - k) // stride + 1
    y = x.new_empty((n, f, oh, ow))
    BLOCK = triton.next_power_of_2(ow)
    _conv[(n, f, oh)](x, weight, bias, y, c, h, w, oh, ow, f, K=k, S=stride, P=padding, BLOCK=BLOCK, num_warps=1)
    return y
"""
)

CONV1D = (
    HEAD
    + """
@triton.jit
def conv(x, weight, out, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for t in tl.static_range(TAPS):
        total += tl.load(x + i + t, mask=i < n, other=0.0) * tl.load(weight + t)
    tl.store(out + i, total, mask=i < n)


def solve(x, weight):
    n = x.numel() - weight.numel() + 1
    out = x.new_empty(n)
    conv[(triton.cdiv(n, 64),)](x, weight, out, n, TAPS=weight.numel(), BLOCK=64)
    return out
"""
)

CANDIDATES = (
    ("conv1d", "spec_conv1d.py", CONV1D),
    ("conv2d_implicit_gemm", "spec_conv2d.py", CONV2D_IMPLICIT_GEMM),
    ("conv2d_direct", "spec_conv2d.py", CONV2D_DIRECT),
)
