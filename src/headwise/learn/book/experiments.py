"""Small things that the lessons compute: one row of attention, four ways to join heads, how alike heads are.

The page of the book does the same in JavaScript (`render/book/book_compute.js`); a test compares the two.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from headwise.compute.block import multi_head_attention
from headwise.compute.functional import attention
from headwise.compute.request import AuxRequest
from headwise.plain.types import AnyArray, Floats
from headwise.reference import reference_attention

WIDEST, SAMPLES = 128, 20_000  # of the measured spread of q . k
BLIND = (16, 24)  # d_model and tokens of the block whose heads go blind


@dataclass(frozen=True)
class Row:
    """One query over its keys: weights ``(n_k,)``, output ``(d_v,)``, log-sum-exp and entropy (nats)."""

    weights: Floats
    output: Floats
    lse: float
    entropy: float


def attention_row(
    scores: AnyArray, values: AnyArray = None, seen: AnyArray = None, scale: float = 1.0
) -> Row:
    """softmax(scale * scores) over the keys that are seen, and the blend of ``values`` ``(n_k, d_v)``.

    >>> attention_row([4, 2, 5]).weights.round(4)
    array([0.2595, 0.0351, 0.7054])
    """
    query = np.array([scores], np.float64)
    n = query.shape[1]
    value = np.eye(n) if values is None else np.array(values, np.float64).reshape(n, -1)
    mask = None if seen is None else np.array([seen], bool)
    request = AuxRequest(lse=True, entropy=True)
    weights, aux = attention(query, np.eye(n), np.eye(n), mask, scale=scale, return_aux=request)
    output = attention(query, np.eye(n), value, mask, scale=scale)
    return Row(weights[0], output[0], float(aux.lse[0]), float(aux.entropy[0]))


def heads_of(
    x: AnyArray, w_q: AnyArray, w_k: AnyArray, w_v: AnyArray, heads: int, **options: Any
) -> tuple[Floats, Floats]:
    """Outputs ``(h, n, d_v)`` and weights ``(h, n, n)`` of the heads of a block, before W_O."""

    def split(w: AnyArray) -> Floats:
        return np.array(np.split(np.asarray(x, np.float64) @ np.asarray(w, np.float64), heads, axis=-1))

    output, weights, _ = reference_attention(split(w_q), split(w_k), split(w_v), **options)
    return output, weights


def block_inputs(seed: int, n: int, d_model: int) -> dict[str, Floats]:
    """Seeded random tokens ``x (n, d_model)`` and four square weights with entries of variance 1 / d_model,
    rounded to three decimals so that a page can print them whole."""
    rng = np.random.default_rng(seed)
    made = {"x": rng.normal(size=(n, d_model))}
    for name in ("w_q", "w_k", "w_v", "w_o"):
        made[name] = rng.normal(size=(d_model, d_model)) / math.sqrt(d_model)
    return {name: array.round(3) for name, array in made.items()}


def four_ways(heads: Floats, w_o: Floats) -> dict[str, Floats]:
    """Four ways from head outputs ``(h, n, d_v)`` to one array, with ``w_o`` ``(h * d_v, d_out)``.

    concatenated: concatenate, then W_O (what multi-head attention does).
    projected: each head times its own d_v rows of W_O, then added: the same numbers.
    summed: the heads added first, then the first d_v rows of W_O.
    shared: each head times those same d_v rows, then added: the same as ``summed``, and not as the first.
    """
    count, _, d_v = heads.shape
    first = w_o[:d_v]
    return {
        "concatenated": np.concatenate(list(heads), axis=-1) @ w_o,
        "projected": np.sum([heads[i] @ w_o[i * d_v : (i + 1) * d_v] for i in range(count)], axis=0),
        "summed": heads.sum(0) @ first,
        "shared": np.sum([head @ first for head in heads], axis=0),
    }


def redundancy(weights: Floats) -> float:
    """How much two heads look alike, 0 … 1: the shared part of their weights, averaged over the queries.

        1 - (1/n) sum_i (1/2) sum_j |a_ij - b_ij|

    ``weights`` is ``(2, n, n_k)``. 1: the same map; 0: no key in common.
    """
    return float(1 - np.abs(weights[0] - weights[1]).sum(-1).mean() / 2)


def favourites(scores: Floats) -> int:
    """How many different keys are some query's highest score, in one head's grid ``(n_q, n_k)``."""
    return len(set(np.asarray(scores).argmax(-1).tolist()))


@cache
def spread_of_products(widest: int = WIDEST, samples: int = SAMPLES, seed: int = 128) -> tuple[float, ...]:
    """Standard deviation of q . k over random q, k with independent entries of variance 1, for d_k = 1 …
    ``widest``."""
    rng = np.random.default_rng(seed)
    products = rng.normal(size=(samples, widest)) * rng.normal(size=(samples, widest))
    return tuple(float(value) for value in products.cumsum(-1).std(0))


def favourites_by_width(
    d_model: int = BLIND[0], n: int = BLIND[1], seed: int = 51
) -> list[tuple[int, int, float]]:
    """(h, d_k, mean number of favourites per head) of a random block, for every h that divides d_model."""
    made = block_inputs(seed, n, d_model)
    found = []
    for count in (h for h in range(1, d_model + 1) if d_model % h == 0):
        query, key = (np.split(made["x"] @ made[name], count, axis=-1) for name in ("w_q", "w_k"))
        each = [favourites(q @ k.T) for q, k in zip(query, key, strict=True)]
        found.append((count, d_model // count, float(np.mean(each))))
    return found


def encoder_layer(x: Floats, weights: dict[str, Any], w_1: Floats, w_2: Floats, num_heads: int) -> Floats:
    """A transformer encoder layer ``(n, d_model)`` -> ``(n, d_model)``, the home of the block.

        y = x + MultiHead(norm(x));   result = y + max(0, norm(y) w_1) w_2

    (Vaswani et al. 2017, section 3.1, with the norm before each part.) ``norm`` brings every row to mean 0
    and variance 1. ``weights`` holds w_q, w_k, w_v, w_o; ``w_1`` is ``(d_model, d_ff)``, ``w_2``
    its way back.
    """

    def norm(rows: Floats) -> Floats:
        return (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)

    y = x + multi_head_attention(norm(x), **weights, num_heads=num_heads)
    return y + np.maximum(norm(y) @ w_1, 0) @ w_2
