"""Attention on the caller's own arrays, in five steps: arrays, problem, plan, kernel, result."""

from typing import Any

import numpy as np

from headwise.compute.arrays import take
from headwise.compute.problem import build_problem
from headwise.compute.request import Aux, AuxRequest
from headwise.compute.running import run
from headwise.plain.types import AnyArray

NOTHING_GIVEN: dict[str, Any] = {}


def attention(
    query: AnyArray,
    key: AnyArray,
    value: AnyArray,
    attn_mask: AnyArray = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    *,
    attn_bias: AnyArray = None,
    causal_alignment: str | None = None,
    query_offset: Any = None,
    window_size: tuple[int | None, int | None] | None = None,
    query_lengths: AnyArray = None,
    kv_lengths: AnyArray = None,
    cu_seqlens_q: AnyArray = None,
    cu_seqlens_k: AnyArray = None,
    segment_ids: AnyArray = None,
    softcap: float | None = None,
    alibi_slopes: AnyArray = None,
    sinks: AnyArray = None,
    head_mask: AnyArray = None,
    block_table: AnyArray = None,
    rng: Any = None,
    return_aux: AuxRequest | None = None,
    implementation: str = "auto",
    num_threads: int | None = None,
) -> Any:
    """Scaled dot-product attention, exact, without an ``n_q x n_k`` array.

        output[i] = sum_j w[i, j] value[j],   w[i] = softmax_j(scale * query[i] . key[j] + mask[i, j])

    (Vaswani et al. 2017, equation 1.) The positional arguments are those of torch's
    ``scaled_dot_product_attention``. NumPy, torch (CPU) and JAX (CPU) arrays are taken without a copy; the
    result is of the kind of ``query``. float64 is computed in float64, float32 in float32; nothing is cast.

    The options apply in this order: scale, soft cap, bias and ALiBi, mask, sink logits in the denominator,
    softmax, dropout, head mask. All that hides keys composes: a key is seen where mask, ``is_causal``,
    window, lengths and segments all let it be seen. What hidden keys and values hold, NaN included, never
    reaches the output. Query i stands at position i + offset among the keys.

    Args:
        query: ``(..., H, n_q, d_k)``; any number of leading axes; ``(n_q, d_k)`` is one head.
        key: ``(..., H_kv, n_k, d_k)``. Query head h uses key head h // (H / H_kv).
        value: ``(..., H_kv, n_k, d_v)``.
        attn_mask: booleans (True = attend) or floats of query's dtype (added to the scores; -inf hides the
            key), broadcast, aligned at the right, to ``(..., H, n_q, n_k)``.
        dropout_p: probability of setting a weight to 0; the others grow by 1 / (1 - dropout_p). Not 0 only
            with ``rng``. Statistics describe the weights before it.
        is_causal: query i sees key j only if j <= i + offset.
        scale: factor of the scores, of either sign or 0; None means 1/sqrt(d_k).
        enable_gqa: None and True take fewer key heads than query heads; False refuses them.
        attn_bias: floats of query's dtype, added to the scores after the soft cap, broadcast as
            ``attn_mask``; -inf hides the key.
        causal_alignment: with n_q != n_k, "upper_left" is offset 0, "lower_right" is offset n_k - n_q, or
            the difference of the lengths where these are given.
        query_offset: position of query 0 among the keys, in place of ``causal_alignment``; may be negative;
            a whole number, or one per batch entry, of the shape of the leading axes.
        window_size: (left, right): query i sees key j only if i + offset - left <= j <= i + offset + right.
            The counts exclude the query's own position; None is open.
        query_lengths, kv_lengths: whole numbers of the shape of the leading axes: how many of the first
            queries and keys are real. A padded query sees nothing, a padded key is seen by nobody.
        segment_ids: whole numbers ``(..., n)`` when n_q == n_k, or a pair (ids of queries, ids of keys).
            Queries see keys of their own id only.
        softcap: c > 0; the scaled score s becomes c * tanh(s / c).
        alibi_slopes: ``(H,)`` or ``(..., H)``; slope * |i + offset - j| is subtracted from the score (Press
            et al. 2022).
        sinks: ``(H,)`` or ``(H, S)``: logits that take part in the denominator of every row of the head, and
            have no value.
        head_mask: ``(H,)`` or ``(..., H)``, factors of the heads' outputs.
        cu_seqlens_q, cu_seqlens_k, block_table: not yet served; refused unless None.
        rng: a seed, or a ``numpy.random.Generator`` that gives one. The weight of query i and key j of a head
            is dropped or kept by a number that depends on seed, head, i and j only (Threefry-2x32-20, Salmon
            et al. 2011): the same for any number of threads and any instruction set.
        return_aux: statistics to return beside the output.
        implementation: "auto" or "kernel".
        num_threads: None means ``HEADWISE_NUM_THREADS``, or every processor that this process may use. The
            result is the same bits for any number of threads and whatever ``return_aux`` asks for.

    Returns:
        The output ``(..., H, n_q, d_v)``, or ``(output, Aux)`` when ``return_aux`` is given. A row that sees
        no key has output 0.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: see ``headwise.errors``; all are
            ``ValueError``.

    >>> import numpy as np
    >>> scores = np.array([[4.0, 2.0, 5.0]])
    >>> attention(scores, np.eye(3), np.eye(3), scale=1.0).round(4)
    array([[0.2595, 0.0351, 0.7054]])
    """
    (q, k, v, mask, bias), restore = take(
        {"query": query, "key": key, "value": value, "attn_mask": attn_mask, "attn_bias": attn_bias}
    )
    given = NOTHING_GIVEN
    if not (
        bias is window_size is query_lengths is kv_lengths is cu_seqlens_q is cu_seqlens_k is None
        and segment_ids is softcap is alibi_slopes is sinks is head_mask is block_table is rng is None
    ):
        given = {
            "attn_bias": bias, "window_size": window_size, "query_lengths": query_lengths,
            "kv_lengths": kv_lengths, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
            "segment_ids": segment_ids, "softcap": softcap, "alibi_slopes": alibi_slopes, "sinks": sinks,
            "head_mask": head_mask, "block_table": block_table, "rng": rng,
        }  # fmt: skip
    problem = build_problem(
        q, k, v, mask, dropout_p, is_causal, scale, enable_gqa, causal_alignment, query_offset, return_aux,
        implementation, num_threads, **given,
    )  # fmt: skip
    output = np.empty((*problem.query.shape[:-1], problem.d_v), q.dtype)
    answers = run(problem, output)
    result = restore(output[0] if problem.one_head else output)
    return result if return_aux is None else (result, Aux(**answers).map(restore))


def attention_statistics(
    query: AnyArray, key: Any, attn_mask: Any = None, *, return_aux: AuxRequest, **options: Any
) -> Aux:
    """The statistics of :func:`attention` without its output: no values, no product with them.

    Args:
        query, key, attn_mask: as for ``attention``.
        return_aux: the statistics.
        options: the other keywords of ``attention``; dropout and ``head_mask`` come after the weights and
            change nothing here.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: as ``attention``.
    """
    arrays = {"query": query, "key": key, "attn_mask": attn_mask, "attn_bias": options.pop("attn_bias", None)}
    (q, k, mask, bias), restore = take(arrays)
    problem = build_problem(q, k, None, mask, return_aux=return_aux, attn_bias=bias, **options)
    return Aux(**run(problem, None)).map(restore)
