"""The three ways into a trace: each checks what was given and brings it into float64, heads in front."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.compute.arrays import take
from headwise.compute.functional import attention
from headwise.compute.problem import build_problem, check_block
from headwise.errors import CapabilityError, HeadwiseError
from headwise.plain.types import AnyArray, Array
from headwise.plain.values import shown
from headwise.reference import visible_and_bias
from headwise.trace.arithmetic import for_each_query_head, join, split
from headwise.trace.attention_pass import AttentionPass
from headwise.trace.block_steps import Block
from headwise.trace.notation import Letters

OPTIONAL = ("context", "b_q", "b_k", "b_v", "b_o", "attn_mask")
LIMIT = 50_000  # numbers in the arrays of a trace
_FINITE = "a trace needs numbers that its checks can be evaluated on"


@dataclass(frozen=True)
class Inputs:
    """What the steps work on, and what headwise computed from the same input in the caller's dtype."""

    kind: str
    forward: AttentionPass
    block: Block | None
    same: Array
    dtype: np.dtype[Any]
    mask: str


def read_block(
    given: dict[str, Any], heads: Any, kv_heads: Any, options: dict[str, Any], names: tuple[Any, Any]
) -> Inputs:
    """``x``, ``context``, weights and biases under their names."""
    taken, _ = take({**given, "attn_mask": options["attn_mask"]}, OPTIONAL)
    views = dict(zip([*given, "attn_mask"], taken, strict=True))
    options = {**options, "attn_mask": views.pop("attn_mask")}
    _one_sequence("x", views["x"], 2)
    sizes = check_block(views, heads, kv_heads)
    context = views["x"] if views["context"] is None else views["context"]
    n_q, n_k = len(views["x"]), len(context)
    per_query = sizes.heads * (2 * sizes.d_k + 2 * sizes.d_v) + views["w_o"].shape[1]
    _small(n_q, n_k, sizes.heads, n_q * per_query + 2 * n_k * sizes.kv_heads * (sizes.d_k + sizes.d_v))
    wide: dict[str, Any] = {n: None if view is None else _wide(n, view) for n, view in views.items()}
    with np.errstate(over="ignore", invalid="ignore"):  # float32 may overflow where float64 does not
        same = _same_output(views, sizes.heads, sizes.kv_heads, options)

    letters = _letters(
        (n_q, n_k, sizes.heads, sizes.kv_heads, sizes.d_k, sizes.d_v), views["context"] is None
    )
    letters.sizes["d_in"] = views["x"].shape[1]
    if views["context"] is not None:
        letters.sizes["d_context"] = context.shape[1]
    letters.sizes["d_out"] = views["w_o"].shape[1]
    w = {letter: wide[f"w_{letter}"] for letter in "qkvo"}
    b = {letter: wide[f"b_{letter}"] for letter in "qkvo"}
    block = Block(wide["x"], wide["context"], w, b, sizes.heads, sizes.kv_heads, letters)
    query, key, value = (split(block.project(letter), block.heads_of(letter)) for letter in "qkv")
    forward = _attention_pass(query, key, value, None, options, letters, names)
    return Inputs("block", forward, block, same, views["x"].dtype, _mask_word(options))


def _same_output(views: dict[str, Any], heads: int, kv_heads: int, options: dict[str, Any]) -> Array:
    """The block's output with ``headwise.attention`` in its middle, all in the caller's dtype."""
    context = views["x"] if views["context"] is None else views["context"]

    def project(rows: Array, letter: str) -> Array:
        bias = views[f"b_{letter}"]
        return rows @ views[f"w_{letter}"] + (0 if bias is None else bias)

    query = split(project(views["x"], "q"), heads)
    key, value = (split(project(context, letter), kv_heads) for letter in "kv")
    return project(join(attention(query, key, value, **options)), "o")


def read_attention(
    query: AnyArray, key: AnyArray, value: AnyArray, options: dict[str, Any], names: tuple[Any, Any]
) -> Inputs:
    """Bare attention."""
    (q, k, v, mask), _ = take({"query": query, "key": key, "value": value, "attn_mask": options["attn_mask"]})
    options = {**options, "attn_mask": mask}
    _one_sequence("query", q, 3)
    problem = _problem(q, k, v, options)
    others = q.size + k.size + v.size + problem.n_q * problem.heads * problem.d_v
    _small(problem.n_q, problem.n_k, problem.heads, others)
    same = attention(q, k, v, **options)
    sizes = (problem.n_q, problem.n_k, problem.heads, problem.kv_heads, problem.d_k, problem.d_v)
    letters = _letters(sizes, problem.n_q == problem.n_k)
    wide = (_wide(name, view) for name, view in (("query", q), ("key", k), ("value", v)))
    q, k, v, same = (array if array.ndim == 3 else array[None] for array in (*wide, same))
    return Inputs(
        "attention",
        _attention_pass(q, k, v, None, options, letters, names),
        None,
        same,
        same.dtype,
        _mask_word(options),
    )


def read_scores(scores: AnyArray, value: AnyArray, options: dict[str, Any], names: tuple[Any, Any]) -> Inputs:
    """A grid of scores. A row of scores is a query whose keys are the unit vectors: s · e_j = s_j."""
    (s, v, mask), _ = take({"scores": scores, "value": value, "attn_mask": options["attn_mask"]})
    options = {**options, "attn_mask": mask, "scale": 1.0 if options["scale"] is None else options["scale"]}
    _one_sequence("scores", s, 3)
    unit = np.eye(s.shape[-1] if s.ndim else 0, dtype=s.dtype)
    k = unit if v.ndim == 2 else np.broadcast_to(unit, (*v.shape[:-2], *unit.shape))
    problem = _problem(s, k, v, options)
    _small(problem.n_q, problem.n_k, problem.heads, v.size + problem.n_q * problem.heads * problem.d_v)
    same = attention(s, k, v, **options)
    sizes = (problem.n_q, problem.n_k, problem.heads, problem.kv_heads, None, problem.d_v)
    letters = _letters(sizes, problem.n_q == problem.n_k)
    s, v, same = (
        array if array.ndim == 3 else array[None] for array in (_wide("scores", s), _wide("value", v), same)
    )
    return Inputs(
        "scores",
        _attention_pass(None, None, v, s, options, letters, names),
        None,
        same,
        same.dtype,
        _mask_word(options),
    )


def _attention_pass(
    query: Array | None,
    key: Array | None,
    value: Array,
    scores: Array | None,
    options: dict[str, Any],
    letters: Letters,
    names: tuple[Any, Any],
) -> AttentionPass:
    """The pass in float64: scores, scale, who sees whom, and what is added."""
    if scores is None:
        assert query is not None and key is not None
        with np.errstate(over="ignore", invalid="ignore"):
            scores = query @ for_each_query_head(key, query.shape[0]).swapaxes(-1, -2)
        _finite("scores", scores, "the products overflow float64; scale the inputs down")
    mask = options["attn_mask"]
    adds = mask is not None and mask.dtype != np.bool_
    if adds:
        _finite(
            "attn_mask",
            np.where(np.isneginf(mask), 0, mask),
            "only \u2212inf, which hides a key, may be infinite",
        )
        mask = mask.astype(np.float64)
    # Whatever the scores came from: unit vectors as keys make a problem of the same sizes, options and scale.
    width = letters.sizes.get("d_k", scores.shape[2])
    problem = _problem(
        np.zeros((*scores.shape[:2], width)),
        np.zeros((*value.shape[:2], width)),
        value,
        {**options, "attn_mask": mask},
    )
    seen, bias = visible_and_bias(scores.shape, problem.mask, problem.is_causal, problem.offset)
    tokens, context_tokens = names
    if context_tokens is None and tokens is not None and letters.same_tokens:
        context_tokens = tokens
    return AttentionPass(
        query=query,
        key=key,
        value=value,
        scores=scores,
        scale=problem.scale,
        scale_given=options["scale"] is not None,
        seen=seen,
        bias=bias if adds else None,
        is_causal=problem.is_causal,
        offset=problem.offset,
        queries=_names("tokens", tokens, scores.shape[1]),
        keys=_names("context_tokens", context_tokens, scores.shape[2]),
        letters=letters,
    )


def _problem(q: Array, k: Array, v: Array, options: dict[str, Any]) -> Any:
    return build_problem(
        q, k, v, options["attn_mask"],
        is_causal=options["is_causal"], scale=options["scale"],
        causal_alignment=options["causal_alignment"], query_offset=options["query_offset"],
    )  # fmt: skip


def _mask_word(options: dict[str, Any]) -> str:
    mask = options["attn_mask"]
    return "none" if mask is None else "boolean" if mask.dtype == np.bool_ else "additive"


def _letters(sizes: tuple[int | None, ...], same_tokens: bool) -> Letters:
    named = zip(("n_q", "n_k", "h", "h_kv", "d_k", "d_v"), sizes, strict=True)
    return Letters({name: size for name, size in named if size is not None}, same_tokens)


def _names(argument: str, names: Any, n: int) -> list[str]:
    if names is None:
        return [str(i) for i in range(n)]
    if not isinstance(names, list | tuple | np.ndarray):
        raise HeadwiseError(
            argument, f"{n} names, one per token", shown(names), 'a list, as in ["the", "cat"]'
        )
    if len(names) != n:
        raise HeadwiseError(argument, f"{n} names, one per token", f"{len(names)}: {shown(list(names))}")
    return [str(name) for name in names]


def _one_sequence(name: str, view: Array, axes: int) -> None:
    if view.ndim > axes:
        expected = f"one sequence, {axes} axes (a trace shows one forward pass)"
        index = ", ".join("0" * (view.ndim - axes))
        raise CapabilityError(
            name, expected, f"shape {view.shape}", f"explain one of the batch: {name}[{index}]"
        )


def _small(n_q: int, n_k: int, heads: int, others: int) -> None:
    if n_q == 0 or n_k == 0:
        raise HeadwiseError("explain", "at least one query and one key", f"{n_q} queries and {n_k} keys")
    numbers = 4 * heads * n_q * n_k + others
    if numbers > LIMIT:
        received = f"{numbers:,} ({heads}·{n_q}·{n_k} scores, and more)"
        hint = (
            "explain the first tokens, x[:8]; for long inputs attention(..., return_aux=AuxRequest(...)) "
            "gives statistics of every row, and inspect_heads a report of a whole model"
        )
        raise CapabilityError("explain", f"a trace of at most {LIMIT:,} numbers", received, hint)


def _wide(name: str, view: Array) -> Array:
    _finite(name, view, _FINITE)
    return view.astype(np.float64)


def _finite(name: str, view: Array, hint: str) -> None:
    bad = np.argwhere(~np.isfinite(view))
    if bad.size:
        place = ", ".join(map(str, bad[0]))
        raise HeadwiseError(name, "finite numbers", f"{view[tuple(bad[0])]} at [{place}]", hint)
