"""Position modules against ``headwise.positions``, whose own tests spell the formulas out."""

import copy
import pickle

import numpy as np
import pytest
import torch

from headwise.compute import positions
from headwise.torch import (
    AlibiPositions,
    LearnedPositions,
    RotaryPositions,
    RotaryScaling,
    SinusoidalPositions,
    T5Positions,
)
from tests.torch.layers import normal
from tests.torch.plain_layer import t5_bucket, turned

SCALINGS = [
    None,
    RotaryScaling(kind="linear", factor=4.0),
    RotaryScaling(kind="ntk", factor=4.0),
    RotaryScaling(kind="yarn", factor=4.0, original_length=32),
    RotaryScaling(kind="llama3", factor=4.0, original_length=256),
]
OFFSETS = torch.tensor([[0, 7], [1000, -2]])


@pytest.mark.parametrize("width", [1, 7, 8])
def test_sinusoidal(width):
    module, x = SinusoidalPositions(width, base=100.0), normal(2, 2, 5, width)
    table = positions.sinusoidal(1100, width, base=100.0, dtype=np.float64)
    torch.testing.assert_close(module(x) - x, torch.from_numpy(table[:5]).expand_as(x))
    torch.testing.assert_close(module(x, offset=9) - x, torch.from_numpy(table[9:14]).expand_as(x))
    found = module(x, offset=OFFSETS.clamp(min=0)) - x
    torch.testing.assert_close(found[1, 0], torch.from_numpy(table[1000:1005]))
    at = torch.tensor([4, 4, 0, 1, 90])
    torch.testing.assert_close(module(x, at) - x, torch.from_numpy(table[at]).expand_as(x))
    assert module(x.half()).dtype == torch.float16 and not list(module.parameters())


def test_learned():
    module, x = LearnedPositions(12, 4, dtype=torch.float64), normal(2, 2, 5, 4)
    assert torch.equal(module(x, offset=3), x + module.weight[3:8])
    assert torch.equal(module(x, torch.tensor([1, 1, 2, 0, 11])), x + module.weight[[1, 1, 2, 0, 11]])
    found = module(x, offset=torch.tensor([[0, 7], [1, -2]]))
    assert torch.equal(found[0, 1], x[0, 1] + module.weight[7:12])
    assert torch.equal(found[1, 1, 2:], x[1, 1, 2:] + module.weight[:3])  # rows -2 and -1 are padding
    module(x).sum().backward()
    assert (module.weight.grad[:5] == 4).all() and (module.weight.grad[5:] == 0).all()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("width", [None, 4])
@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_rotary(interleaved, width, scaling):
    module = RotaryPositions(500.0, width=width, interleaved=interleaved, scaling=scaling)
    x = normal(2, 2, 3, 5, 8)
    options = {"base": 500.0, "width": width, "interleaved": interleaved, "scaling": scaling}
    for offset in (0, 3, 40):
        expected = positions.rotary(x, np.arange(offset, offset + 5), **options)
        torch.testing.assert_close(module(x, offset=offset), expected, rtol=0, atol=1e-13)
    at = OFFSETS[..., None] + torch.arange(5)
    expected = positions.rotary(x, at[..., None, :].numpy(), **options)
    torch.testing.assert_close(module(x, at), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(module(x, offset=OFFSETS), expected, rtol=0, atol=1e-12)
    if scaling is None:
        torch.testing.assert_close(module(x)[1, 0, 2], turned(x[1, 0, 2], torch.arange(5), module))


def test_rotary_gradients_turn_back():
    module, x = RotaryPositions(), normal(2, 5, 8).requires_grad_()
    upstream = normal(2, 5, 8, seed=2)
    (module(x, offset=4) * upstream).sum().backward()
    back = positions.rotary(upstream, -np.arange(4, 9))
    torch.testing.assert_close(x.grad, back, rtol=0, atol=1e-13)
    assert torch.autograd.gradcheck(lambda y: module(y, torch.tensor([3, 1, 4, 1, 5])), x)


def test_rotary_tables_are_shared_by_widths_and_dtypes_and_left_out_of_copies():
    module = RotaryPositions()
    for _ in range(2):
        for x in (normal(3, 8), normal(3, 4), normal(3, 8).float(), normal(3, 8).half()):
            module(x)
    assert len(module._tables) == 3  # float16 turns in float32
    with torch.inference_mode():
        module(normal(200, 8))
    module(normal(200, 8).requires_grad_()).sum().backward()
    assert not copy.deepcopy(module)._tables and not pickle.loads(pickle.dumps(module))._tables


def test_scores_depend_on_differences_of_positions_only():
    for interleaved in (False, True):
        module, q, k = RotaryPositions(interleaved=interleaved), normal(1, 8), normal(1, 8, seed=2)
        scores = [(module(q, offset=a + 11) * module(k, offset=a)).sum() for a in (0, 5, 70)]
        torch.testing.assert_close(scores[1], scores[0])
        torch.testing.assert_close(scores[2], scores[0])


def test_alibi():
    np.testing.assert_array_equal(AlibiPositions(6)().numpy(), positions.alibi_slopes(6))
    module = AlibiPositions(3, slopes=[0.5, 0.0, -1.0])
    assert module().tolist() == [0.5, 0.0, -1.0] and module.keep([2, 0])().tolist() == [-1.0, 0.5]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    "n_q, n_k, offset", [(5, 5, 0), (1, 40, 39), (7, 3, -2), (4, 50, 9), (0, 3, 0), (3, 0, 1)]
)
def test_t5(bidirectional, n_q, n_k, offset):
    module = T5Positions(3, bidirectional=bidirectional, num_buckets=8, max_distance=20, dtype=torch.float64)
    found = module(n_q, n_k, offset=offset)
    assert found.shape == (3, n_q, n_k)
    for i in range(n_q):
        for j in range(n_k):
            bucket = t5_bucket(j - i - offset, bidirectional, 8, 20)
            assert torch.equal(found[:, i, j], module.weight[bucket])
    sizes = {"bidirectional": bidirectional, "num_buckets": 8, "max_distance": 20}
    buckets = positions.t5_buckets(n_q, n_k, query_offset=offset, **sizes)
    assert torch.equal(found, module.weight[torch.from_numpy(buckets)].permute(2, 0, 1))
    per_entry = module(n_q, n_k, offset=torch.tensor([[offset], [offset + 3]]))
    assert torch.equal(per_entry[0, 0], found)
    assert torch.equal(per_entry[1, 0], module(n_q, n_k, offset=offset + 3))


def test_t5_against_transformers():
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    for decoder in (False, True):
        config = T5Config(num_heads=4, relative_attention_num_buckets=16, relative_attention_max_distance=30)
        config.is_decoder = decoder
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        ours = T5Positions(4, bidirectional=not decoder, num_buckets=16, max_distance=30)
        with torch.no_grad():
            ours.weight.copy_(theirs.relative_attention_bias.weight)
        assert torch.equal(ours(50, 50), theirs.compute_bias(50, 50)[0])


def test_t5_gradients_count_pairs():
    module = T5Positions(1, num_buckets=8, max_distance=20, dtype=torch.float64)
    module(30, 40).sum().backward()
    counts = np.bincount(positions.t5_buckets(30, 40, num_buckets=8, max_distance=20).ravel(), minlength=8)
    assert module.weight.grad[:, 0].tolist() == counts.tolist()
