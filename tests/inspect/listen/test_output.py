"""The model's own output in blocks of queries: against one dense computation, whatever the block."""

import pytest
import torch

from headwise.compute.request import AuxRequest
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.listen import output
from headwise.inspect.listen.output import blockwise, ensure_output, fuse


def arrays(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, 21, 6), (2, 2, 30, 6), (2, 2, 30, 5))
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, 2.0, 0.0])])
@pytest.mark.parametrize("block", [1, 1 << 24])
def test_blocks(monkeypatch, softcap, sinks, block):
    monkeypatch.setattr(output, "BLOCK_BYTES", block)
    query, key, value = arrays()
    generator = torch.Generator().manual_seed(1)
    added = torch.randn(1, 4, 21, 30, generator=generator, dtype=torch.float64)
    seen = torch.arange(30) <= torch.arange(21)[:, None] + 9
    seen[3] = False  # a row that sees nothing
    part = lambda mask: lambda q, k: mask[..., slice(*q), slice(*k)]  # noqa: E731
    found = blockwise(
        query, key, value, scale=0.7, softcap=softcap, sinks=sinks, bias=part(added), visible=part(seen),
        reach=lambda q: (0, min(30, q[1] + 9)),
    )  # fmt: skip
    scores = 0.7 * query @ key.repeat_interleave(2, 1).transpose(-1, -2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = (scores + added).masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[None, :, None, None].expand(2, 4, 21, 1)], dim=-1)
    weights = scores.softmax(-1).nan_to_num()[..., :30]
    assert (found - weights @ value.repeat_interleave(2, 1)).abs().max() < 1e-12


def test_queries_out_of_reach_of_any_key():
    query, key, value = arrays()
    found = blockwise(query, key, value, scale=1.0, reach=lambda q: (30, 30))
    assert torch.equal(found, torch.zeros(2, 4, 21, 5, dtype=torch.float64))


def test_one_pass_of_the_kernel_gives_statistics_and_output():
    query, key, value = arrays()
    call = AttentionCall(
        layer=0, name="", query=query, key=key, value=value, options={"is_causal": True, "query_offset": 9}
    )
    fuse(call)
    entropy = call.statistics(AuxRequest(entropy=True)).entropy
    assert call.runner is None and torch.equal(call.statistics(AuxRequest(entropy=True)).entropy, entropy)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, (torch.arange(30) <= torch.arange(21)[:, None] + 9), enable_gqa=True
    )
    assert (call.output - expected).abs().max() < 1e-12 and ensure_output(call) is call.output
    unasked = AttentionCall(layer=0, name="", query=query, key=key, value=value, options=call.options)
    fuse(unasked)
    assert torch.equal(ensure_output(unasked), call.output)
