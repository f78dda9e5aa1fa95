"""All cases, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

import torch

from tests.kernels.attention import attention_case
from tests.kernels.case import Case
from tests.kernels.elementwise import add_case, dropout_case
from tests.kernels.histogram import histogram_case
from tests.kernels.layer_norm import layer_norm_backward_case, layer_norm_case
from tests.kernels.matmul import matmul_case
from tests.kernels.scan import cumsum_case, recurrence_case
from tests.kernels.softmax import softmax_case

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@cache
def all_cases() -> Mapping[str, Case]:
    return MappingProxyType({case.name: case for case in _cases()})


def _cases() -> Iterator[Case]:
    for dtype in DTYPES:
        yield add_case(dtype)
        yield dropout_case(dtype)
        yield softmax_case(dtype)
        yield matmul_case(dtype)
        yield layer_norm_case(dtype)
        yield layer_norm_backward_case(dtype)
        yield attention_case(dtype, causal=dtype != torch.float16)
        yield cumsum_case(dtype)
        yield recurrence_case(dtype)
    yield histogram_case()
