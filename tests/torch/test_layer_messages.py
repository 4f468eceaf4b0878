"""The text of every error message of the layer and its parts, word for word, in golden/layer_messages.txt.

A last test reads the source: every place that raises has to be reached by one of the cases here.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from headwise import HeadwiseError
from headwise.torch import (
    AlibiPositions,
    DecoderLayer,
    DynamicCache,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    PagedCache,
    RollingCache,
    RotaryPositions,
    SinusoidalPositions,
    StaticCache,
    T5Positions,
)
from tests.raising import golden, unreached

MODULES = ("torch/arguments", "torch/caches", "torch/layer", "torch/positions")
X, MEMORY = torch.zeros(2, 5, 12), torch.zeros(2, 7, 12)
KEEP = torch.ones(2, 5, dtype=torch.bool)


def made(embed_dim=12, num_heads=3, **options):
    return lambda: MultiHeadAttention(embed_dim, num_heads, **options)


def call(*inputs, query=X, layer=None, **options):
    made_with = {} if layer is None else layer

    def run():
        module = MultiHeadAttention(12, 3, **made_with).eval().requires_grad_(False)
        return module(query, *inputs, **options)

    return run


def cached(cache, first=X, then=X, layer=None, key_mask=None, **options):
    """One piece, then another."""

    def run():
        module = (
            MultiHeadAttention(12, 3, **({"is_causal": True} | (layer or {}))).eval().requires_grad_(False)
        )
        own = copy.deepcopy(cache)
        module(first, cache=own)
        return module(then, cache=own, key_mask=key_mask, **options)

    return run


def kept(layer=None, memory=MEMORY, **options):
    module = MultiHeadAttention(12, 3, **(layer or {})).requires_grad_(False)
    return module.keys_and_values(memory, **options)


def pruned(heads, replaced=None, **options):
    def run():
        module = MultiHeadAttention(12, 6, **options)
        if replaced:
            setattr(module, replaced, nn.Identity())
        module.prune_heads(heads)

    return run


def filled(cache, entries=2, tokens=5, width=4, dtype=torch.float32, heads=3):
    cache.append(
        torch.zeros(entries, heads, tokens, width, dtype=dtype), torch.zeros(entries, heads, tokens, 4)
    )
    return cache


def used_by_two():
    cache, layers = DynamicCache(), [MultiHeadAttention(12, 3, is_causal=True) for _ in range(2)]
    for layer in layers:
        layer(X, cache=cache)


def rolled_apart():
    """Entries that let go of different numbers of tokens."""
    layer = MultiHeadAttention(12, 3, is_causal=True, window_size=(2, 0)).requires_grad_(False)
    cache = RollingCache(2)
    for i in range(8):
        layer(X[:, :1], cache=cache, key_mask=torch.tensor([[True], [i == 0]]))
    layer(X[:, :1], cache=cache, attn_mask=torch.ones(1, 9, dtype=torch.bool))


def truncated_too_far():
    cache = filled(RollingCache(2))
    for _ in range(3):
        filled(cache)
    cache.truncate(1)


def reordered_without_a_batch():
    cache = DynamicCache()
    cache.append(torch.zeros(3, 2, 4), torch.zeros(3, 2, 4))
    cache.reorder([0])


ROPE = {"rope": True}
CASES = {
    # sizes
    "embed_dim": made("512"),
    "num_heads": made(num_heads=0),
    "head_dim": made(head_dim=2.5),
    "512 and 6": made(512, 6),
    "more heads than columns": made(12, 24),
    "key heads": made(12, 6, num_kv_heads=4),
    # options
    "is_causal": made(is_causal=1),
    "dropout": made(dropout=1.5),
    "scale": made(scale="auto"),
    "infinite scale": made(scale=float("inf")),
    "softcap": made(softcap=0),
    "sinks": made(sinks=-1),
    "window of one number": made(window_size=4),
    "window below zero": made(window_size=(-1, 0)),
    "rope": made(rope=10000.0),
    "rope of an odd width": made(15, 3, rope=True),
    "rope of too many features": made(rope=RotaryPositions(width=8)),
    "alibi": made(alibi=[0.5, 0.5, 0.5]),
    "alibi of another number of heads": made(alibi=AlibiPositions(4)),
    "rel_bias": made(rel_bias=nn.Embedding(32, 3)),
    "rel_bias of another number of heads": made(rel_bias=T5Positions(4)),
    "qk_norm": made(qk_norm="batch"),
    # inputs
    "query in NumPy": call(query=np.zeros((2, 5, 12))),
    "query of one axis": call(query=torch.zeros(12)),
    "query of another width": call(query=torch.zeros(2, 5, 11)),
    "key of another width": call(torch.zeros(2, 7, 11)),
    "value of another width": call(MEMORY, torch.zeros(2, 7, 5), layer={"vdim": 8}),
    "self-attention of a layer for another memory": call(layer={"kdim": 8}),
    "key of another batch": call(torch.zeros(3, 7, 12)),
    "float64 into float32": call(query=X.double()),
    "whole numbers": call(query=X.long()),
    "another device": call(query=X.to("meta")),
    "value without key": call(value=MEMORY),
    "value of another length": call(MEMORY, torch.zeros(2, 6, 12)),
    "a sparse query": call(query=X.to_sparse()),
    "a nested query": lambda: call(query=torch.nested.nested_tensor([X[0], X[1, :3]], layout=torch.jagged))(),
    # masks and positions
    "key_mask of numbers": call(key_mask=torch.ones(2, 5)),
    "key_mask in a list": call(key_mask=[[True]]),
    "key_mask of another shape": call(key_mask=torch.ones(2, 7, dtype=torch.bool)),
    "positions without rope": call(positions=torch.arange(5)),
    "positions of fractions": call(layer=ROPE, positions=torch.arange(5.0)),
    "positions in a list": call(layer=ROPE, positions=[0, 1, 2, 3, 4]),
    "positions of another length": call(layer=ROPE, positions=torch.arange(4)),
    "key_positions of another length": call(
        MEMORY, layer=ROPE, positions=torch.arange(5), key_positions=torch.zeros(3, 7, dtype=torch.long)
    ),
    "rope and a fractional offset": call(MEMORY, layer=ROPE, query_offset=1.5),
    "rope over a memory": call(MEMORY, layer=ROPE),
    "rel_bias over a memory": call(MEMORY, layer={"rel_bias": True}),
    "causal over a memory": call(MEMORY, is_causal=True),
    # kept keys and values
    "kept: no tensor": lambda: kept(memory=None),
    "kept: key_mask": lambda: kept(key_mask=KEEP),
    "kept of another batch": lambda: call(kept(memory=MEMORY[:1]))(),
    "kept of another layer": lambda: call(kept({"num_kv_heads": 1}))(),
    "kept and key_mask": lambda: call(kept(), key_mask=torch.ones(2, 7, dtype=torch.bool))(),
    "kept and value": lambda: call(kept(), MEMORY)(),
    "kept and key_positions": lambda: call(kept(ROPE), layer=ROPE, key_positions=torch.arange(7))(),
    # caches
    "cache: a list": call(layer={"is_causal": True}, cache=[]),
    "cache: not causal": call(cache=DynamicCache()),
    "cache and memory": call(MEMORY, cache=DynamicCache()),
    "cache and offset": call(cache=DynamicCache(), query_offset=3, layer={"is_causal": True}),
    "cache of another batch": cached(DynamicCache(), then=X[:1]),
    "cache of another layer": lambda: cached(filled(DynamicCache(), width=6))(),
    "cache of all layers": used_by_two,
    "cache of another dtype": lambda: filled(filled(DynamicCache()), dtype=torch.float64),
    "padding between tokens": cached(
        DynamicCache(), key_mask=torch.tensor([[True, False, True, True, True], [True] * 5])
    ),
    "key_mask of all tokens": cached(DynamicCache(), key_mask=torch.ones(2, 10, dtype=torch.bool)),
    "static and full": cached(StaticCache(8)),
    "static and gradients": lambda: MultiHeadAttention(12, 3, is_causal=True)(X, cache=StaticCache(8)),
    "static of nothing": lambda: StaticCache(0),
    "rolling without a window": call(layer={"is_causal": True}, cache=RollingCache(4)),
    "rolling and a wider window": cached(RollingCache(4), layer={"window_size": (5, 0)}),
    "rolling apart and a mask": rolled_apart,
    "rolling back too far": truncated_too_far,
    "pages used up": cached(PagedCache(block_size=4, num_blocks=4)),
    "no pages": lambda: PagedCache(num_blocks=0),
    "truncate": lambda: DynamicCache().truncate(-1),
    "reorder": lambda: filled(DynamicCache()).reorder([0, 2]),
    "reorder of two axes": lambda: filled(DynamicCache()).reorder([[0], [1]]),
    "reorder without a batch": reordered_without_a_batch,
    # TorchScript
    "scripted": lambda: torch.jit.script(nn.Sequential(MultiHeadAttention(12, 3))),
    # pruning
    "prune a head that is not there": pruned([6]),
    "prune by name": pruned("first"),
    "prune one number": pruned(3),
    "prune all": pruned(range(6)),
    "prune unevenly": pruned([0, 1, 2], num_kv_heads=3),
    "prune an adapted layer": pruned([0], replaced="q_proj"),
    # positions
    "sinusoidal width": lambda: SinusoidalPositions(0),
    "sinusoidal base": lambda: SinusoidalPositions(4, base=-1),
    "sinusoidal of another width": lambda: SinusoidalPositions(4)(torch.zeros(3, 5)),
    "learned length": lambda: LearnedPositions(0, 4),
    "learned and full": lambda: LearnedPositions(4, 2)(torch.zeros(3, 2), offset=2),
    "rotary width": lambda: RotaryPositions(width=3),
    "rotary scaling": lambda: RotaryPositions(scaling={"factor": 2}),
    "rotary of narrow heads": lambda: RotaryPositions(width=8)(torch.zeros(3, 4)),
    "rotary of odd heads": lambda: RotaryPositions()(torch.zeros(3, 5)),
    "no heads": lambda: AlibiPositions(0),
    "slopes": lambda: AlibiPositions(2, slopes=[0.5]),
    "t5 heads": lambda: T5Positions(0),
    "t5 distance": lambda: T5Positions(2, max_distance=0),
    "t5 buckets": lambda: T5Positions(2, num_buckets=3),
    # blocks
    "activation": lambda: EncoderLayer(12, 3, activation="tanh"),
    "norm": lambda: EncoderLayer(12, 3, norm="batch"),
    "norm_first": lambda: EncoderLayer(12, 3, norm_first=1),
    "ff_dim": lambda: EncoderLayer(12, 3, ff_dim=0),
    "block dropout": lambda: EncoderLayer(12, 3, dropout=2.0),
    "encoder of another key width": lambda: EncoderLayer(12, 3, kdim=8),
    "encoder of another output": lambda: EncoderLayer(12, 3, out_dim=8),
    "decoder of another value width": lambda: DecoderLayer(12, 3, vdim=8),
    "memory mask of numbers": lambda: DecoderLayer(12, 3)(X, MEMORY, memory_mask=torch.ones(2, 7)),
    "memory mask of queries": lambda: DecoderLayer(12, 3)(X, MEMORY, memory_mask=KEEP),
}  # fmt: skip


def caught(case):
    # torch.jit.script warns that it is on its way out.
    with warnings.catch_warnings(), pytest.raises(HeadwiseError) as error:
        warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
        case()
    return error.value


EXPECTED = golden("layer_messages.txt")


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    error = caught(CASES[name])
    assert f"{type(error).__name__}\n{error}" == EXPECTED[name]
    assert error.argument and error.expected and error.received and error.hint
    assert all("  " not in part.split("\n")[0] for part in (error.expected, error.received, error.hint))


def test_no_golden_message_is_left_over():
    assert set(EXPECTED) == set(CASES)


def test_every_place_that_raises_is_reached():
    assert unreached(MODULES, CASES.values()) == []
