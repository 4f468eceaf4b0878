"""Random layers and inputs, every size another number."""

import random

import torch

from headwise.torch import MultiHeadAttention, RotaryPositions, T5Positions


def random_options(seed, causal=None, window=True):
    """Keywords of a layer, embed_dim and num_heads among them."""
    rng = random.Random(seed)
    kv_heads = rng.choice([1, 2, 3])
    heads = kv_heads * rng.choice([1, 2, 3])
    head_dim = rng.choice([2, 4, 6])
    options = {
        "embed_dim": rng.choice([heads * head_dim, 7, 10]),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "v_head_dim": rng.choice([None, 1, 3, 5]),
        "out_dim": rng.choice([None, 9]),
        "bias": rng.random() < 0.7,
        "k_bias": rng.choice([None, False]),
        "qk_norm": rng.choice([None, None, "rms", "layer", "l2"]),
        "rope": rng.choice(
            [None, True, RotaryPositions(50.0, width=2), RotaryPositions(100.0, interleaved=True)]
        ),
        "alibi": rng.random() < 0.25,
        "rel_bias": T5Positions(heads, bidirectional=rng.random() < 0.5, num_buckets=8, max_distance=9)
        if rng.random() < 0.3
        else None,
        "softcap": rng.choice([None, None, 2.0]),
        "sinks": rng.choice([0, 0, 1, 2]),
        "is_causal": rng.random() < 0.5 if causal is None else causal,
        "scale": rng.choice([None, 0.7]),
    }
    if window:
        options["window_size"] = rng.choice([None, None, (2, 0), (3, 1), (None, 2)])
    return options


def layer_of(options, seed=0):
    """A float64 layer whose every parameter is random, biases and gains included."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(**options, dtype=torch.float64).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim == 2 else 0.8))
    return layer


def normal(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
