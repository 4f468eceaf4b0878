"""What the tests of the kernel share: one call against the specification, random requests, cases for bits."""

import inspect
import os
from contextlib import contextmanager

import headwise._core as _core
import numpy as np
from hypothesis import strategies as st

from headwise import AuxRequest, attention
from headwise.compute import planning
from headwise.compute.problem import build_problem
from headwise.reference import reference_attention, visible_and_bias
from headwise.reference.dropout import dropout_factors
from headwise.reference.statistics import dense_statistics
from tests.compare import assert_output, assert_statistics, seen_by, weight_error

ISAS = _core.isa_names()
VISIBILITY = set(inspect.signature(visible_and_bias).parameters) - {"shape", "attn_mask"}
POSITIONLESS = dict(
    lse=True,
    max_weight=True,
    argmax=True,
    entropy=True,
    sink_mass=3,
    received=True,
    sum_squares=True,
    sink_logit_mass=True,
)


@contextmanager
def running_on(isa):
    """Everything inside runs on one instruction set."""
    before = os.environ.get("HEADWISE_ISA")
    os.environ["HEADWISE_ISA"] = isa
    planning._settings.cache_clear()
    try:
        yield
    finally:
        os.environ.pop("HEADWISE_ISA")
        if before is not None:
            os.environ["HEADWISE_ISA"] = before
        planning._settings.cache_clear()


def check(isa, query, key, value, attn_mask=None, request=None, **options):
    """One call against the specification: the output, and every statistic of the request."""
    with running_on(isa):
        answer = attention(query, key, value, attn_mask, return_aux=request, **options)
    output, aux = (answer, None) if request is None else answer
    told = {
        name: option for name, option in options.items() if name not in ("num_threads", "rng", "dropout_p")
    }
    expected, weights, lse = reference_attention(query, key, value, attn_mask, **told)
    rules = {name: option for name, option in told.items() if name in VISIBILITY}
    visible, bias = seen_by(query, key, attn_mask, **rules)
    bound = weight_error(query, key, visible, bias, options.get("scale"))
    spread = weights  # what makes up the output, in absolute values
    if options.get("dropout_p"):
        factors = dropout_factors(weights.shape, options["dropout_p"], options["rng"])
        expected, _, _ = reference_attention(query, key, value, attn_mask, dropout=factors, **told)
        spread = spread * factors
    if options.get("head_mask") is not None:
        spread = spread * np.abs(np.asarray(options["head_mask"]))[..., None, None]
    assert_output(output, expected, spread, value, bound)
    if request is None:
        return
    offset = options.get("query_offset", 0)
    problem = build_problem(query, key, value, return_aux=request, query_offset=offset)
    answers = dense_statistics(
        weights,
        visible,
        request,
        lse=lse,
        is_causal=options.get("is_causal", False),
        query_offset=offset,
        key_tokens=problem.key_tokens,
        query_tokens=problem.query_tokens,
    )
    assert_statistics(aux, answers, weights, visible, bound, query.dtype)


def requests(draw, n_q, n_k):
    """A random request: every statistic with probability about one half."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="request"))
    few = draw(st.sampled_from([2, 5, 40]), label="vocabulary")
    ids = rng.integers(0, few, n_k)
    matches = draw(st.sampled_from([None, "keys", "both"]), label="matches")
    flags = {
        name: bool(rng.random() < 0.5)
        for name in (
            "lse",
            "max_weight",
            "argmax",
            "entropy",
            "sum_squares",
            "sink_logit_mass",
            "distance",
            "received",
        )  # fmt: skip
    }
    return AuxRequest(
        **flags,
        top_k=draw(st.sampled_from([0, 1, 3, 50]), label="top_k"),
        sink_mass=draw(st.sampled_from([0, 1, 4, 90]), label="sink_mass"),
        relative=draw(st.sampled_from([(), (0,), (-1, 0, 1), (-70, 3, 64, 3)]), label="relative"),
        matches={None: None, "keys": ids, "both": (ids, rng.integers(0, few, n_q))}[matches],
        classes=draw(st.sampled_from([None, rng.integers(-1, 3, n_k)]), label="classes"),
        pooled=draw(st.sampled_from([0, 1, 3, 16, 64, 100]), label="pooled"),
    )


EVERY_REQUEST = {
    "none": None,
    "lse": AuxRequest(lse=True),
    "max_weight": AuxRequest(max_weight=True),
    "argmax": AuxRequest(argmax=True),
    "entropy": AuxRequest(entropy=True),
    "sum_squares": AuxRequest(sum_squares=True),
    "sink_logit_mass": AuxRequest(sink_logit_mass=True),
    "distance": AuxRequest(distance=True),
    "top_k": AuxRequest(top_k=5),
    "sink_mass": AuxRequest(sink_mass=4),
    "relative": AuxRequest(relative=(-1, 0)),
    "matches": AuxRequest(matches=np.arange(150) % 7),
    "classes": AuxRequest(classes=np.arange(150) % 4 - 1),
    "received": AuxRequest(received=True),
    "pooled": AuxRequest(pooled=10),
    "all": AuxRequest(
        **POSITIONLESS, distance=True, top_k=5, relative=(-1, 0), matches=np.arange(150) % 7,
        classes=np.arange(150) % 4 - 1, pooled=10,
    ),
}  # fmt: skip


def bits(array):
    return array.view(np.uint8).tobytes()


# With one head, every number of threads gives other shares of the rows, so other groups of rows in registers.
SHAPES = {"many heads": (2, 6, 2, 145), "one head": (1, 1, 1, 290)}


def bit_test_arrays(shape, dtype):
    batch, heads, kv_heads, n_q = SHAPES[shape]
    rng = np.random.default_rng(15)
    return [
        rng.normal(size=(batch, h, n, 12)).astype(dtype)
        for h, n in ((heads, n_q), (kv_heads, 150), (kv_heads, 150))
    ]
