"""ONNX operators in terms of headwise: layouts, defaults and dtypes of ONNX, no mathematics of its own."""

import numpy as np

from headwise import AttentionWeights, attention
from headwise.compute.positions import rotary


def run_attention(inputs, attributes):
    """``Attention`` (opsets 23 to 25): Y, present_key, present_value, qk_matmul_output."""
    query, key, value, mask, past_key, past_value, real = (*inputs, *[None] * (7 - len(inputs)))
    out_dtype, flat = query.dtype, query.ndim == 3
    if flat:
        query = split(query, attributes["q_num_heads"])
        key, value = (split(x, attributes["kv_num_heads"]) for x in (key, value))
    if past_key is not None:
        key, value = (np.concatenate(pair, axis=2) for pair in ((past_key, key), (past_value, value)))
    present = key, value
    query, key, value = (computed(x) for x in (query, key, value))

    options = {
        "is_causal": bool(attributes.get("is_causal", 0)),
        "scale": attributes.get("scale"),
        "softcap": attributes.get("softcap") or None,
        "window_size": tuple(
            None if attributes.get(name, -1) < 0 else attributes[name]
            for name in ("left_window_size", "right_window_size")
        ),
        "query_offset": 0 if past_key is None else past_key.shape[2],
    }
    if real is not None:
        options |= {"kv_lengths": real, "query_offset": real - query.shape[2]}
    if mask is not None:
        hidden = False if mask.dtype == np.bool_ else -np.inf
        short = key.shape[2] - mask.shape[-1]
        mask = np.pad(
            mask if mask.dtype == np.bool_ else mask.astype(query.dtype),
            [*[(0, 0)] * (mask.ndim - 1), (0, short)],
            constant_values=hidden,
        )
        options["attn_mask" if mask.dtype == np.bool_ else "attn_bias"] = mask

    output = attention(query, key, value, **options).astype(out_dtype)
    if flat:
        output = output.swapaxes(1, 2).reshape(output.shape[0], output.shape[2], -1)
    weights = AttentionWeights(query, key, **options)
    mode = attributes.get("qk_matmul_output_mode", 0)
    stages = [weights.logits("scaled"), weights.logits("capped"), weights.logits("masked"), weights]
    return output, *present, np.asarray(stages[mode]).astype(out_dtype)


def run_rotary(inputs, attributes):
    """``RotaryEmbedding`` (opset 23): X with its heads rotated by the angles of the given tables."""
    x, cosines, sines, *rest = inputs
    flat = x.ndim == 3
    heads = split(x, attributes["num_heads"]) if flat else x
    if rest and rest[0] is not None:
        cosines, sines = cosines[rest[0]], sines[rest[0]]
    rotated = rotary(
        computed(heads),
        table=(computed(cosines)[:, None], computed(sines)[:, None]),
        interleaved=bool(attributes.get("interleaved", 0)),
        width=attributes.get("rotary_embedding_dim") or None,
    ).astype(x.dtype)
    return (rotated.swapaxes(1, 2).reshape(x.shape) if flat else rotated,)


def split(x, heads):
    """(B, n, heads * d) -> (B, heads, n, d)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def computed(x):
    """Half types in float32; the result is rounded once, at the end."""
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
