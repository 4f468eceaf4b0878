"""Encoder and decoder layers: against torch's own with the same weights, with caches, and their options."""

import pytest
import torch
from torch import nn

from headwise import AuxRequest
from headwise.torch import DecoderLayer, DynamicCache, EncoderLayer, StaticCache
from tests.torch.convert import from_torch, from_torch_block, randomised
from tests.torch.layers import normal

BOTH = {"rtol": 1e-10, "atol": 1e-11}


def test_both_have_the_parameters_of_torch():
    ours, theirs = EncoderLayer(12, 3, ff_dim=20), nn.TransformerEncoderLayer(12, 3, 20)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    ours, theirs = DecoderLayer(12, 3, ff_dim=20), nn.TransformerDecoderLayer(12, 3, 20)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert EncoderLayer(12, 3).feed_forward.up.out_features == 48


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_beside_torch(norm_first, activation):
    made = {"norm_first": norm_first, "batch_first": True, "activation": activation, "dtype": torch.float64}
    theirs = randomised(nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, **made))
    ours, x = from_torch_block(theirs), normal(2, 6, 12)
    pad = torch.arange(6) >= torch.tensor([[6], [4]])
    mine = x.clone().requires_grad_()
    other = x.clone().requires_grad_()
    found, expected = ours(mine, key_mask=~pad), theirs(other, src_key_padding_mask=pad)
    torch.testing.assert_close(found, expected, **BOTH)
    upstream = normal(2, 6, 12, seed=3) * ~pad[..., None]
    (found * upstream).sum().backward()
    (expected * upstream).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad, **BOTH)
    torch.testing.assert_close(ours.feed_forward.up.weight.grad, theirs.linear1.weight.grad, **BOTH)
    torch.testing.assert_close(ours.norms[0].weight.grad, theirs.norm1.weight.grad, **BOTH)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_beside_torch(norm_first):
    made = {"norm_first": norm_first, "batch_first": True, "dtype": torch.float64}
    theirs = randomised(nn.TransformerDecoderLayer(12, 3, 20, dropout=0.0, **made))
    ours = DecoderLayer(12, 3, ff_dim=20, activation="relu", norm_first=norm_first, dtype=torch.float64)
    ours.attention = from_torch(theirs.self_attn, is_causal=True)
    ours.memory_attention = from_torch(theirs.multihead_attn)
    for mine, other in (
        (ours.feed_forward.up, theirs.linear1),
        (ours.feed_forward.down, theirs.linear2),
        *zip(ours.norms, (theirs.norm1, theirs.norm2, theirs.norm3), strict=True),
    ):
        mine.load_state_dict(other.state_dict())
    x, memory = normal(2, 6, 12), normal(2, 8, 12, seed=2)
    pad = torch.arange(8) >= torch.tensor([[8], [3]])
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected = theirs(x, memory, tgt_mask=future, memory_key_padding_mask=pad)
    torch.testing.assert_close(ours(x, memory, memory_mask=~pad), expected, **BOTH)
    # Token by token, the memory projected once.
    kept, cache = ours.memory_attention.keys_and_values(memory, key_mask=~pad), DynamicCache()
    stepwise = [ours(x[:, i : i + 1], kept, cache=cache) for i in range(6)]
    torch.testing.assert_close(torch.cat(stepwise, 1), expected, **BOTH)


@pytest.mark.parametrize(
    "options", [{"norm": "rms", "gated": True, "activation": "silu"}, {"norm_first": False}]
)
def test_a_decoder_only_model_with_caches(options):
    shared = {"rope": True, "num_kv_heads": 1, "qk_norm": "rms", "bias": False, "dtype": torch.float64}
    blocks = [randomised(EncoderLayer(12, 3, is_causal=True, **shared, **options), i) for i in range(2)]
    x = normal(2, 7, 12)
    whole = blocks[1](blocks[0](x))
    with torch.no_grad():
        caches, rows = [StaticCache(7), StaticCache(7)], []
        for a, b in ((0, 3), (3, 4), (4, 7)):
            rows.append(x[:, a:b])
            for block, cache in zip(blocks, caches, strict=True):
                rows[-1] = block(rows[-1], cache=cache)
    torch.testing.assert_close(torch.cat(rows, 1), whole, **BOTH)


def test_gated_feed_forward_is_the_formula():
    block = EncoderLayer(6, 2, ff_dim=5, gated=True, activation=torch.tanh, dtype=torch.float64)
    net, x = block.feed_forward, normal(3, 6)
    expected = net.down(torch.tanh(net.gate(x)) * net.up(x))
    torch.testing.assert_close(net(x), expected, **BOTH)


def test_statistics():
    encoder, decoder = EncoderLayer(12, 3), DecoderLayer(12, 3)
    x, request = torch.randn(2, 5, 12), AuxRequest(entropy=True)
    output, aux = encoder(x, return_aux=request)
    assert torch.equal(output, encoder(x)) and aux.entropy.shape == (2, 3, 5)
    output, (own, other) = decoder(x, torch.randn(2, 9, 12), return_aux=AuxRequest(received=True))
    assert own.received.shape == (2, 3, 5) and other.received.shape == (2, 3, 9)


def test_dropout_in_training_only():
    block, x = EncoderLayer(12, 3, dropout=0.5), torch.randn(2, 5, 12)
    assert not torch.equal(block(x), block(x))
    assert block.attention.dropout == 0.5
    block.eval()
    assert torch.equal(block(x), block(x))


def test_what_goes_to_both_attentions():
    decoder = DecoderLayer(12, 6, memory_dim=5, num_kv_heads=2, head_dim=4, rope=True, window_size=(3, 0))
    assert decoder.attention.is_causal and not decoder.memory_attention.is_causal
    assert decoder.memory_attention.num_kv_heads == 2 and decoder.memory_attention.head_dim == 4
    assert decoder.memory_attention.rope is None and decoder.memory_attention.window_size == (None, None)
    assert decoder(torch.randn(2, 5, 12), torch.randn(2, 9, 5)).shape == (2, 5, 12)
