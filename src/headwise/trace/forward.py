"""``explain``: every step of a forward pass, with its numbers, its formula and the checks that hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.plain.types import AnyArray, Array
from headwise.plain.values import shown
from headwise.plain.version import __version__
from headwise.trace import block_steps
from headwise.trace.arithmetic import for_each_query_head, split
from headwise.trace.attention_pass import AttentionPass
from headwise.trace.attention_steps import attention_steps, given
from headwise.trace.block_steps import Block
from headwise.trace.claims import make
from headwise.trace.data import Check, Step, Trace
from headwise.trace.forward_inputs import Inputs, read_attention, read_block, read_scores
from headwise.trace.nested_lists import array_of, mask_of

_MUCH = 1e-6  # of a weight: more than anyone would put down to rounding unasked
WAYS = "x with w_q, w_k, w_v, w_o and num_heads; or query, key and value; or scores and value"


def explain(
    x: AnyArray = None,
    context: AnyArray = None,
    *,
    w_q: AnyArray = None,
    w_k: AnyArray = None,
    w_v: AnyArray = None,
    w_o: AnyArray = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    b_q: AnyArray = None,
    b_k: AnyArray = None,
    b_v: AnyArray = None,
    b_o: AnyArray = None,
    query: AnyArray = None,
    key: AnyArray = None,
    value: AnyArray = None,
    scores: AnyArray = None,
    attn_mask: AnyArray = None,
    is_causal: bool = False,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    scale: float | None = None,
    tokens: Sequence[str] | None = None,
    context_tokens: Sequence[str] | None = None,
    title: str | None = None,
    about: str = "",
) -> Trace:
    """Every step of one forward pass on small inputs: arrays, formulas, and checks that are evaluated.

    Three ways in, each for one sequence (no batch axis), all with float64 numbers inside. Arrays may be
    nested lists, which are taken as float64 (a mask of True and False as booleans):

    * a block: ``x``, ``w_q``, ``w_k``, ``w_v``, ``w_o``, ``num_heads`` (and ``context``, ``num_kv_heads``,
      biases), as for :func:`headwise.multi_head_attention`;
    * bare attention: ``query``, ``key``, ``value``, as for :func:`headwise.attention`;
    * a grid of ``scores`` and the ``value`` rows.

    Args:
        x: ``(n_q, d_in)``; context: ``(n_k, d_context)``, None for self-attention.
        w_q: ``(d_in, h * d_k)``; w_k: ``(d_context, h_kv * d_k)``; w_v: ``(d_context, h_kv * d_v)``;
            w_o: ``(h * d_v, d_out)``; b_q, b_k, b_v, b_o: one number per column.
        query: ``(h, n_q, d_k)``; key: ``(h_kv, n_k, d_k)``; value: ``(h_kv, n_k, d_v)``; all without the
            first axis for one head.
        scores: ``(h, n_q, n_k)`` or ``(n_q, n_k)``; taken as they are (scale 1) unless ``scale`` is given.
        attn_mask, is_causal, causal_alignment, query_offset, scale: as for :func:`headwise.attention`. In a
            list of numbers None hides a key, as minus infinity does.
        tokens: names of the queries; context_tokens: names of the keys. Self-attention has one list for
            both. None counts from 0.
        title, about: a line and a sentence for the top of the views.

    Returns:
        A :class:`headwise.trace.Trace`. Print it; ``to_html()``, ``to_markdown()`` and ``to_json()`` are
        other views.

    Raises:
        ShapeError, DtypeError, HeadwiseError: as the functions above.
        CapabilityError: a batch axis, or arrays of more than 50,000 numbers in all.

    >>> import numpy as np
    >>> trace = explain(scores=[[4, 2, 5]], value=np.eye(3))
    >>> trace["weights"]["A_i"].round(4)
    array([[[0.2595, 0.0351, 0.7054]]])
    >>> trace.holds
    True
    """
    options = {
        "attn_mask": mask_of(attn_mask),
        "is_causal": is_causal,
        "causal_alignment": causal_alignment,
        "query_offset": query_offset,
        "scale": scale,
    }
    x, context = array_of("x", x), array_of("context", context)
    query, key, value = array_of("query", query), array_of("key", key), array_of("value", value)
    scores = array_of("scores", scores)
    weights = {
        name: array_of(name, w) for name, w in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v), ("w_o", w_o))
    }
    biases = {name: array_of(name, b) for name, b in (("b_q", b_q), ("b_k", b_k), ("b_v", b_v), ("b_o", b_o))}
    block = {"x": x, **weights, "num_heads": num_heads}
    beside = {"context": context, "num_kv_heads": num_kv_heads, **biases}
    kind = _kind(
        {"block": block, "attention": {"query": query, "key": key, "value": value},
         "scores": {"scores": scores, "value": value}},
        beside,
    )  # fmt: skip
    for argument, text in (("title", title), ("about", about)):
        if text is not None and not isinstance(text, str):
            raise HeadwiseError(argument, "text", shown(text))
    names = (tokens, context_tokens)
    if kind == "block":
        arrays = {"x": x, "context": context, **weights, **biases}
        inputs = read_block(arrays, num_heads, num_kv_heads, options, names)
    elif kind == "attention":
        inputs = read_attention(query, key, value, options, names)
    else:
        inputs = read_scores(scores, value, options, names)
    return _trace(inputs, title, about or "")


def _kind(ways: dict[str, dict[str, Any]], beside: dict[str, Any]) -> str:
    """Which of the three ways in the caller took; a mixture, or half of one, is refused."""
    marks = {
        "block": ("x", "w_q", "w_k", "w_v", "w_o", "num_heads"),
        "attention": ("query", "key"),
        "scores": ("scores",),
    }
    taken = [kind for kind, names in marks.items() if any(ways[kind][name] is not None for name in names)]
    given = [name for way in ways.values() for name, item in way.items() if item is not None]
    given += [name for name, item in beside.items() if item is not None]
    given = list(dict.fromkeys(given))
    if len(taken) != 1:
        raise HeadwiseError(
            "explain", WAYS, ", ".join(given) or "nothing", "headwise explain --example A shows one"
        )
    kind = taken[0]
    missing = [name for name, item in ways[kind].items() if item is None]
    if missing:
        received = f"{', '.join(given)}, without {', '.join(missing)}"
        raise HeadwiseError(missing[0], ", ".join(ways[kind]), received, f"the ways in: {WAYS}")
    foreign = [name for name in given if name not in ways[kind] and not (kind == "block" and name in beside)]
    if foreign:
        hint = "projections and biases belong to a block, where query, key and value are computed"
        raise HeadwiseError(foreign[0], f"None beside {', '.join(ways[kind])}", "an array or number", hint)
    return kind


def _trace(inputs: Inputs, title: str | None, about: str) -> Trace:
    """The steps, and what stands around them."""
    forward, block = inputs.forward, inputs.block
    blend = forward.blend
    result = blend if block is None else block_steps.result_of(block, blend)
    claim = f"headwise.attention gives the same output, in {inputs.dtype}"
    compared = _compared(claim, result, inputs)
    sizes = forward.letters.sizes
    return Trace(
        headwise=__version__,
        title=_title(inputs) if title is None else title,
        about=about,
        kind=inputs.kind,
        sizes=dict(sizes),
        options={
            "is_causal": forward.is_causal,
            "query_offset": forward.offset,
            "scale": forward.scale,
            "mask": inputs.mask,
        },
        queries=forward.queries,
        keys=forward.keys,
        steps=tuple(_steps(forward, block, blend, result, compared)),
        output=result.tolist(),
        compared={
            "function": "headwise.attention",
            "max_abs_difference": compared.error,
            "tolerance": compared.tolerance,
            "why": compared.why,
        },
        notes=_notes(forward),
    )


def _steps(
    forward: AttentionPass, block: Block | None, blend: Array, result: Array, compared: Check
) -> list[Step]:
    if block is not None:
        before = [block_steps.shapes(block), block_steps.projections(block), block_steps.split_step(block)]
        after = [
            block_steps.concatenation(block, blend),
            block_steps.output(block, blend, result, compared),
        ]
        return [*before, *attention_steps(forward, None), *after]
    return [*([] if forward.query is None else [given(forward)]), *attention_steps(forward, compared)]


def _title(inputs: Inputs) -> str:
    words = {"block": "Multi-head attention", "attention": "Attention", "scores": "Attention from its scores"}
    letters = inputs.forward.letters
    n_q, n_k = letters.sizes["n_q"], letters.sizes["n_k"]
    lengths = f"n = {n_q}" if letters.same_tokens else f"n_q = {n_q}, n_k = {n_k}"
    return f"{words[inputs.kind]}: h = {letters.sizes['h']}, {lengths}"


def _notes(forward: AttentionPass) -> list[str]:
    notes = ["Heads, queries, keys and columns are counted from 0."]
    if not forward.has_mask and not forward.is_causal:
        notes.append("Nothing is masked: every query sees every key.")
    empty = np.argwhere(~forward.seen.any(-1)).tolist()
    if empty:
        rows = ", ".join(f"head {head} query {forward.queries[query]}" for head, query in empty[:6])
        more = f" and {len(empty) - 6} more" if len(empty) > 6 else ""
        notes.append(f"Rows that see no key have weights 0 and output 0: {rows}{more}.")
    return notes


def _compared(claim: str, result: Array, inputs: Inputs) -> Check:
    """The output against that of ``headwise.attention``, as far apart as rounding may bring the two.

    A score that is off by e changes a weight by a factor of up to exp(e), so what large scores lose to
    rounding comes back in the output: the check then says so.
    """
    forward, block = inputs.forward, inputs.block
    eps = float(np.finfo(inputs.dtype).eps)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(result - inputs.same).max(initial=0.0)
        scores, values, terms = _sizes(forward, block)
    lost = 8 * (terms + 4) * eps * (1 + scores)  # of a score, and so of a weight
    why = ""
    if lost > _MUCH:
        why = (
            f"products of queries and keys reach {scores:.1e}, where {inputs.dtype} rounds a score by about "
            f"{eps * scores:.1e}: two ways to add them up may differ as much as this"
        )
    return make("same_output", claim, error, lost * values, why)


def _sizes(forward: AttentionPass, block: Block | None) -> tuple[float, float, int]:
    """How large scores and outputs could get if no sign cancelled another, and how many terms they sum."""
    if forward.query is None or forward.key is None:
        scores, value, width = np.abs(forward.scaled), np.abs(forward.values), forward.scores.shape[2]
    else:
        sizes = [forward.query, forward.key, forward.value]
        width = forward.query.shape[-1]
        if block is not None:
            sizes = [_sizes_of(block, letter) for letter in "qkv"]
            width += block.x.shape[1] + block.w["k"].shape[0] + block.w["o"].shape[0]
        query, key, value = (np.abs(array) for array in sizes)
        scores = abs(forward.scale) * (query @ for_each_query_head(key, forward.heads).swapaxes(-1, -2))
        value = for_each_query_head(value, forward.heads)
    size = float(value.max(initial=0.0))
    if block is not None:
        size *= float(np.abs(block.w["o"]).sum(0).max(initial=0.0))
        size += 0.0 if block.b["o"] is None else float(np.abs(block.b["o"]).max(initial=0.0))
    return float(scores.max(initial=0.0)), size, width + forward.scores.shape[2]


def _sizes_of(block: Block, letter: str) -> Array:
    bias = block.b[letter]
    projected = np.abs(block.source(letter)) @ np.abs(block.w[letter])
    return split(projected if bias is None else projected + np.abs(bias), block.heads_of(letter))
