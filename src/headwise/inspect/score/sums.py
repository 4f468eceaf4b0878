"""From the statistics of one call to sums over its query rows.

The statistics come from ``headwise.functional`` in one pass over the keys, without an n_q x n_k array. What
uniform attention gives comes from the same code, run on the same call with query = key = 0: it also says how
many keys each row sees. Definitions and sources of the scores: ``scorecard``.
"""

import numpy as np

from headwise.compute.answers import Aux
from headwise.compute.request import AuxRequest
from headwise.errors import HeadwiseError
from headwise.inspect.score.call import AttentionCall
from headwise.inspect.score.card import BIAS, CLASS
from headwise.inspect.score.tally import (
    NEAR,
    OFFSETS,
    Bands,
    Bias,
    Booleans,
    Floats,
    Integers,
    Mean,
    Offsets,
    Received,
    Tally,
    mean_over,
    ratio_over,
)
from headwise.inspect.score.text import Text
from headwise.inspect.score.visible import Visible, class_mass, rows_of


def request_for(call: AttentionCall, queries: Text, keys: Text, *, top_k: int, block: int) -> AuxRequest:
    """All statistics that the scores of this call need."""
    itself = call.kind == "self"
    return AuxRequest(
        lse=True,
        max_weight=True,
        argmax=True,
        entropy=True,
        sum_squares=True,
        sink_logit_mass=call.options.get("sinks") is not None,
        received=True,
        distance=itself,
        relative=offsets_of(call) if itself else (),
        matches=_ids(queries, keys) if itself else None,
        classes=keys.patterns[0][None],
        top_k=top_k,
        pooled=block,
    )


def offsets_of(call: AttentionCall) -> tuple[int, ...]:
    """The offsets worth asking for: in causal attention no key after the query is seen."""
    return tuple(o for o in OFFSETS if o <= 0 or not call.is_causal)


def check_finite(call: AttentionCall, aux: Aux) -> None:
    """Raise HeadwiseError where a row that sees a key has no number for an answer."""
    lse = np.asarray(aux.lse)
    wrong = np.isnan(lse) | (lse == np.inf)
    if wrong.any():
        raise HeadwiseError(
            "query and key",
            "finite numbers wherever a query sees a key",
            f"{call.name}: scores that are not finite in {int(wrong.sum())} of {wrong.size} rows",
            "look for NaN, infinity or an overflow in the layers before it",
        )


def tally_of(call: AttentionCall, aux: Aux, visible: Visible, keys: Text) -> Tally:
    """The sums of every score that the one pass gives."""
    of = _of(aux, visible)
    means = _spread(aux, visible, of) | _classes(aux, visible, keys, of) | _content(aux, keys, of)
    if aux.sink_logit_mass is not None:
        means["sink_logit"] = mean_over(rows_of(aux.sink_logit_mass), of, of)
    seen = rows_of(aux.received_count)
    seen = seen[:1] if (seen == seen[0]).all() else seen
    received = Received(rows_of(aux.received), seen)
    count = of.sum(axis=1, dtype=np.float64)
    heads = len(rows_of(aux.entropy))
    biases = _biases(means, received, visible, keys)
    if call.kind != "self":
        means |= _steps(aux, of)
        return Tally(np.broadcast_to(count, heads), means, received=received, biases=biases)
    near = _near(aux, of)
    means |= _neighbours(call, aux, visible, of)
    if not call.is_causal and call.first_row == 0:
        first = np.arange(of.shape[1]) == 0
        means["entropy_first_row"] = mean_over(rows_of(aux.entropy), of & first, of)
    return Tally(
        np.broadcast_to(count, heads),
        means,
        _offsets(call, aux, visible, near, of),
        _bands(call, aux, near, of),
        received,
        biases=biases,
    )


def null_tally(call: AttentionCall, uniform: Aux, visible: Visible, keys: Text) -> Tally:
    """The same sums under uniform attention; where equal weights leave open which key is the strongest, one
    picked at random counts."""
    tally = tally_of(call, uniform, visible, keys)
    of = visible.rows
    means = {"sink_logit": mean_over(np.zeros(of.shape), of, of)}
    one_over_n = rows_of(uniform.max_weight)
    if call.kind == "self":
        means["positional_argmax"] = mean_over(one_over_n, of, of)
    else:
        pairs = of.copy()
        pairs[:, 0] = False
        means["monotonic"] = mean_over((1 + one_over_n) / 2, pairs, of)
    return tally.with_means(means)


def _of(aux: Aux, visible: Visible) -> Booleans:
    return visible.rows if len(visible.rows) == 1 else np.isfinite(rows_of(aux.max_weight))


def _spread(aux: Aux, visible: Visible, of: Booleans) -> dict[str, Mean]:
    entropy, squares = rows_of(aux.entropy), rows_of(aux.sum_squares)
    several = visible.keys > 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "entropy": mean_over(entropy, of, of),
            "entropy_normalized": mean_over(
                entropy / np.log(np.where(several, visible.keys, 2.0)), several, of
            ),
            "renyi2": mean_over(-np.log(squares), of, of),
            "effective_keys": mean_over(np.exp(entropy), of, of),
            "max_weight": mean_over(rows_of(aux.max_weight), of, of),
        }


def _biases(means: dict[str, Mean], received: Received, visible: Visible, keys: Text) -> dict[str, Bias]:
    """Mean weights per entry, of special tokens and of the user's own classes."""
    whole, every = received.total.sum(axis=1), visible.keys.sum(axis=1)
    own = {name: name.replace(CLASS, BIAS, 1) for name in keys.patterns[1] if name.startswith(CLASS)}
    if "special" in keys.patterns[1]:
        own["special"] = "special_bias"
    return {key: Bias(means[name].total, visible.members[name], whole, every) for name, key in own.items()}


def _classes(aux: Aux, visible: Visible, keys: Text, of: Booleans) -> dict[str, Mean]:
    """Mass on classes of keys; a class is a union of the patterns that the kernel was asked for."""
    mass = rows_of(aux.classes)
    return {
        name: mean_over(mass[..., list(patterns)].sum(axis=-1), of, of)
        for name, patterns in keys.patterns[1].items()
    }


def _content(aux: Aux, keys: Text, of: Booleans) -> dict[str, Mean]:
    if aux.duplicate is None:
        return {}
    duplicate, induction = rows_of(aux.duplicate), rows_of(aux.induction)
    possible = rows_of(aux.induction_count) > 0
    elsewhere = 1.0 - class_mass(aux, keys, "first")
    if aux.sink_logit_mass is not None:
        elsewhere = elsewhere - rows_of(aux.sink_logit_mass)
    return {
        "duplicate": mean_over(duplicate, rows_of(aux.duplicate_count) > 0, of),
        "induction": mean_over(induction, possible, of),
        "induction_entry": _entries(aux, of),
        "induction_without_first": _worth_it(ratio_over(induction, elsewhere, possible, of)),
    }


def _entries(aux: Aux, of: Booleans) -> Mean:
    count = rows_of(aux.induction_count)
    return ratio_over(rows_of(aux.induction), count, count > 0, of)


LEAST = 1e-3  # mean weight off the first token below which a ratio over it is rounding, not a score


def _worth_it(ratio: Mean) -> Mean:
    enough = ratio.weight >= LEAST * ratio.rows
    return Mean(np.where(enough, ratio.total, 0.0), np.where(enough, ratio.weight, 0.0), ratio.rows, ratio.of)


def _neighbours(call: AttentionCall, aux: Aux, visible: Visible, of: Booleans) -> dict[str, Mean]:
    assert visible.offsets is not None
    mass = np.asarray(aux.relative)[0]
    means = {
        "distance": mean_over(rows_of(aux.distance), of, of),
        "self": mean_over(mass[..., NEAR].astype(np.float64), of, of),
        "previous": mean_over(mass[..., NEAR - 1].astype(np.float64), visible.offsets[..., NEAR - 1], of),
    }
    if not call.is_causal:
        means["next"] = mean_over(mass[..., NEAR + 1].astype(np.float64), visible.offsets[..., NEAR + 1], of)
    return means


def _near(aux: Aux, of: Booleans) -> Floats:
    """(H, 17): the mass of all rows at every one of OFFSETS, 0 at those that no row sees."""
    mass = np.asarray(aux.relative)[0]
    if not of.all():
        mass = np.where(of[..., None], mass, 0)
    sums = mass.sum(axis=1, dtype=np.float64)
    return np.pad(sums, ((0, 0), (0, len(OFFSETS) - sums.shape[1])))


def _offsets(call: AttentionCall, aux: Aux, visible: Visible, near: Floats, of: Booleans) -> Offsets:
    assert visible.offsets is not None
    strongest = np.asarray(aux.argmax)[0]
    heads = len(strongest)
    offset = strongest - (np.arange(strongest.shape[1]) + call.offset)
    slot = np.where(of & (np.abs(offset) <= NEAR), offset + NEAR, len(OFFSETS))  # the last one: elsewhere
    slots = len(OFFSETS) + 1
    hits = np.bincount((slot + slots * np.arange(heads)[:, None]).reshape(-1), minlength=heads * slots)
    rows = np.broadcast_to((visible.offsets & of[..., None]).sum(axis=1), (heads, len(OFFSETS)))
    count = np.broadcast_to(of.sum(axis=1), heads)
    return Offsets(
        near,
        hits.reshape(heads, slots)[:, :-1].astype(np.float64),
        rows.astype(np.float64),
        count.astype(np.float64),
    )


def _bands(call: AttentionCall, aux: Aux, near: Floats, of: Booleans) -> Bands:
    """Bands of offsets: each of OFFSETS alone, then |offset| 9 … 15, 16 … 31 and so on, both sides together.

    Pairs are counted by position alone: every key that stands there, seen or not, but none after the query
    in causal attention.
    """
    n_k, causal = call.key.shape[-2], call.is_causal
    position = np.arange(of.shape[1]) + call.offset
    there = position[:, None] + np.array(OFFSETS)
    exists = (there >= 0) & (there < n_k) & (~np.bool_(causal) | (np.array(OFFSETS) <= 0))
    near_pairs = (of[..., None] & exists).sum(axis=1)
    histogram = np.asarray(aux.distance_histogram, np.float64)[0]
    total = np.nan_to_num(histogram) * of.sum(axis=1)[:, None]
    far, far_pairs = [], []
    for bucket in range(NEAR.bit_length(), total.shape[1]):
        low, high = 2 ** (bucket - 1), 2**bucket - 1
        inside = total[:, bucket]
        if low == NEAR:  # the offsets −8 and 8 have bands of their own
            inside = inside - near[:, 0] - near[:, -1]
            low += 1
        left = np.clip(np.minimum(position, high) - np.maximum(low, position - n_k + 1) + 1, 0, None)
        ahead = n_k - 1 - position
        right = np.clip(np.minimum(ahead, high) - np.maximum(low, -position) + 1, 0, None)
        far.append(np.maximum(inside, 0.0))
        far_pairs.append((of * (left + (0 if causal else right))).sum(axis=1))
    masses = np.column_stack([near, *far])
    pairs = np.column_stack([near_pairs, *far_pairs])
    squares = np.where(of, rows_of(aux.sum_squares), 0.0).sum(axis=1)
    return Bands(masses, np.broadcast_to(pairs, masses.shape).astype(np.float64), squares)


def _steps(aux: Aux, of: Booleans) -> dict[str, Mean]:
    """How often the strongest key does not step back, from one row to the next."""
    strongest = np.asarray(aux.argmax)[0]
    forward = np.zeros(strongest.shape)
    forward[:, 1:] = strongest[:, 1:] >= strongest[:, :-1]
    both = np.broadcast_to(of, strongest.shape).copy()
    both[:, 1:] &= np.broadcast_to(of, strongest.shape)[:, :-1]
    both[:, :1] = False
    return {"monotonic": mean_over(forward, both, np.broadcast_to(of, strongest.shape))}


def _ids(queries: Text, keys: Text) -> tuple[Integers, Integers] | None:
    return None if queries.ids is None or keys.ids is None else (keys.ids[None], queries.ids[None])


def strongest_of(aux: Aux) -> tuple[Integers, Floats]:
    """(H, n_q) the strongest key of each row and its weight; −1 and 0 where a row sees nothing."""
    return np.asarray(aux.argmax)[0], np.nan_to_num(rows_of(aux.max_weight))
