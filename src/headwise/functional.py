"""Attention on the caller's own arrays, in five steps: arrays, problem, plan, kernel, result."""

from typing import Any

import numpy as np

import headwise._core as _core
from headwise.arrays import take
from headwise.options import refuse_unserved, served
from headwise.planning import make_plan
from headwise.problem import Problem, build_problem
from headwise.request import AuxRequest
from headwise.statistics import Aux, allocate


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    *,
    attn_bias: Any = None,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    window_size: Any = None,
    query_lengths: Any = None,
    kv_lengths: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    segment_ids: Any = None,
    softcap: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    head_mask: Any = None,
    block_table: Any = None,
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

    Args:
        query: ``(..., H, n_q, d_k)``; any number of leading axes; ``(n_q, d_k)`` is one head.
        key: ``(..., H_kv, n_k, d_k)``. Query head h uses key head h // (H / H_kv).
        value: ``(..., H_kv, n_k, d_v)``.
        attn_mask: booleans (True = attend) or floats of query's dtype (added to the scores; -inf hides the
            key), broadcast, aligned at the right, to ``(..., H, n_q, n_k)``. What hidden keys and values
            hold, NaN included, never reaches the output.
        dropout_p: has to be 0.
        is_causal: query i sees key j only if j <= i + offset. Composes with ``attn_mask``.
        scale: factor of the scores; None means 1/sqrt(d_k).
        enable_gqa: None and True take fewer key heads than query heads; False refuses them.
        causal_alignment: with n_q != n_k, "upper_left" is offset 0, "lower_right" is offset n_k - n_q.
        query_offset: position of query 0 among the keys, in place of ``causal_alignment``; may be negative.
        return_aux: statistics to return beside the output.
        implementation: "auto" or "kernel".
        num_threads: None means ``HEADWISE_NUM_THREADS``, or every processor that this process may use. The
            result is the same bits for any number of threads and whatever ``return_aux`` asks for.
        attn_bias, window_size, query_lengths, kv_lengths, cu_seqlens_q, cu_seqlens_k, segment_ids, softcap,
            alibi_slopes, sinks, head_mask, block_table, rng: not yet served; refused unless None.

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
    refuse_unserved(locals())
    (q, k, v, mask), restore = take({"query": query, "key": key, "value": value, "attn_mask": attn_mask})
    problem = build_problem(
        q, k, v, mask, dropout_p, is_causal, scale, enable_gqa, causal_alignment, query_offset, return_aux,
        implementation, num_threads,
    )  # fmt: skip
    output = np.empty((*problem.query.shape[:-1], problem.d_v), q.dtype)
    answers = _run(problem, output)
    result = restore(output[0] if problem.one_head else output)
    return result if return_aux is None else (result, Aux(**answers).map(restore))


def attention_statistics(
    query: Any, key: Any, attn_mask: Any = None, *, return_aux: AuxRequest, **options: Any
) -> Aux:
    """The statistics of :func:`attention` without its output: no values, no product with them.

    Args:
        query, key, attn_mask: as for ``attention``.
        return_aux: the statistics.
        options: the other keywords of ``attention``.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: as ``attention``.
    """
    (q, k, mask), restore = take({"query": query, "key": key, "attn_mask": attn_mask})
    problem = build_problem(q, k, None, mask, return_aux=return_aux, **served(options))
    return Aux(**_run(problem, None)).map(restore)


def _run(problem: Problem, output: Any) -> dict[str, Any]:
    """Plan, let the kernel fill output and statistics, hand the statistics back by name."""
    plan = make_plan(problem)
    answers, arguments = allocate(problem)
    _core.attend(
        problem.query,
        problem.key,
        problem.value,
        output,
        problem.mask,
        scale=problem.scale,
        is_causal=problem.is_causal,
        query_offset=problem.offset,
        isa=plan.isa,
        num_threads=plan.num_threads,
        **arguments,
    )
    return {name: answer[0] for name, answer in answers.items()} if problem.one_head else answers
