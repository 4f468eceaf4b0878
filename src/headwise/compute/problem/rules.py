"""The options beyond mask, causal and scale, each checked once and brought into the shape of the problem."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from headwise.compute.arrays import integers, numbers
from headwise.compute.options import OPTIONS, UNSERVED
from headwise.compute.problem.masks import check_bias, check_ids
from headwise.compute.problem.offsets import Window, check_lengths, check_window
from headwise.compute.problem.sizes import Shape
from headwise.errors import CapabilityError, HeadwiseError, ShapeError
from headwise.plain.types import Array, Floats, Integers
from headwise.plain.values import is_number, is_whole, shown

OPEN: Window = (None, None)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Rules:
    """What else shapes the scores and who sees whom; the shapes are those of the whole problem.

    Attributes:
        bias: ``(*lead, H, n_q, n_k)``, added after the soft cap.
        query_offsets: ``(*lead,)``, position of query 0, where it differs between batch entries.
        window: (left, right), None = open.
        query_lengths, kv_lengths: ``(*lead,)``.
        query_segments, key_segments: ``(*lead, n_q)`` and ``(*lead, n_k)``; equal ids see each other.
        softcap: the cap c of c * tanh(score / c).
        alibi_slopes: ``(*lead, H)``.
        sinks: ``(H, S)``, logits that take part in the denominator only.
        head_mask: ``(*lead, H)``, factors of the output.
        dropout_p, seed: probability of dropping a weight, and what decides which.
    """

    bias: Array | None = None
    query_offsets: Integers | None = None
    window: Window = OPEN
    query_lengths: Integers | None = None
    kv_lengths: Integers | None = None
    query_segments: Integers | None = None
    key_segments: Integers | None = None
    softcap: float | None = None
    alibi_slopes: Floats | None = None
    sinks: Floats | None = None
    head_mask: Floats | None = None
    dropout_p: float = 0.0
    seed: int = 0

    def words(self) -> list[str]:
        """What a plan says about them."""
        left, right = ("open" if side is None else side for side in self.window)
        told = {
            "bias": self.bias is not None,
            f"window ({left}, {right})": self.window != OPEN,
            "query lengths": self.query_lengths is not None,
            "key lengths": self.kv_lengths is not None,
            "segments": self.query_segments is not None,
            f"soft cap {self.softcap}": self.softcap is not None,
            "ALiBi": self.alibi_slopes is not None,
            f"sinks, {0 if self.sinks is None else self.sinks.shape[-1]} per head": self.sinks is not None,
            "head mask": self.head_mask is not None,
            f"dropout {self.dropout_p}": self.dropout_p > 0,
        }
        return [word for word, applies in told.items() if applies]

    def options(self) -> dict[str, Any]:
        """The same as options of the kernel, which reads each under the name of its field."""
        return {name: option for name in FIELDS if (option := getattr(self, name)) is not None}


FIELDS = tuple(part.name for part in fields(Rules))
NO_RULES = Rules()


def refuse_unknown(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given (not None), after refusing what is unknown or not yet served.

    Raises:
        CapabilityError: an option that a later release brings.
        TypeError: a name that is no option.
    """
    options = {name: option for name, option in given.items() if option is not None}
    for name, option in options.items():
        if name in UNSERVED:
            expected = "None (this option is not yet served)"
            raise CapabilityError(name, expected, shown(option), UNSERVED[name])
        if name not in OPTIONS:
            raise TypeError(f"attention has no option {name!r}")
    return options


def build_rules(
    given: Mapping[str, Any], dropout_p: float, full: Shape, dtype: np.dtype[Any]
) -> tuple[dict[str, Any], str | None]:
    """Checked fields of :class:`Rules`, and the name of an option that uses positions, or None.

    Args:
        given: options by name, none of them None.
        dropout_p: a number between 0 and 1.
        full: ``(*lead, H, n_q, n_k)``.
        dtype: that of query.
    """
    *batch, heads, n_q, n_k = full
    lead = tuple(batch)
    fields: dict[str, Any] = {}
    if "attn_bias" in given:
        fields["bias"] = check_bias(given["attn_bias"], dtype, full)
    if "window_size" in given:
        fields["window"] = check_window(given["window_size"])
    for name, n, what in (("query_lengths", n_q, "queries"), ("kv_lengths", n_k, "keys")):
        if name in given:
            fields[name] = check_lengths(name, given[name], lead, n, what)
    if "segment_ids" in given:
        fields["query_segments"], fields["key_segments"] = _segment_ids(given["segment_ids"], lead, n_q, n_k)
    if "softcap" in given:
        fields["softcap"] = _softcap(given["softcap"], dtype)
    for name in ("alibi_slopes", "head_mask"):
        if name in given:
            fields[name] = _per_head(name, given[name], lead, heads)
    if "sinks" in given:
        fields["sinks"] = _sinks(given["sinks"], heads)
    if dropout_p > 0:
        fields["dropout_p"] = float(dropout_p)
        fields["seed"] = _seed(given.get("rng"), dropout_p)
    elif "rng" in given:
        _check_rng(given["rng"])
    windowed = fields.get("window", OPEN) != OPEN
    return fields, "window_size" if windowed else "alibi_slopes" if "alibi_slopes" in given else None


def _segment_ids(given: Any, lead: Shape, n_q: int, n_k: int) -> tuple[Integers, Integers]:
    # Only a tuple of two sequences is a pair: a list of two lists is a batch of two sequences.
    if isinstance(given, tuple) and len(given) == 2 and not any(map(is_whole, given)):
        query_ids, key_ids = (integers("segment_ids", ids) for ids in given)
        return (
            check_ids("segment_ids", query_ids, lead, n_q, "query"),
            check_ids("segment_ids", key_ids, lead, n_k, "key"),
        )
    if n_q != n_k:
        expected = "a pair (query_ids, key_ids), as n_q != n_k"
        received = f"one array of ids, with {n_q} queries and {n_k} keys"
        raise ShapeError("segment_ids", expected, received, "segment_ids=(query_ids, key_ids)")
    ids = check_ids("segment_ids", integers("segment_ids", given), lead, n_k, "key")
    return ids, ids


def _softcap(cap: Any, dtype: np.dtype[Any]) -> float:
    limits = np.finfo(dtype)
    if not is_number(cap) or not float(limits.tiny) <= cap <= float(limits.max):
        hint = "the score s becomes softcap * tanh(s / softcap); None caps nothing"
        raise HeadwiseError("softcap", "None or a finite number > 0", shown(cap), hint)
    return float(cap)


def _per_head(name: str, given: Any, lead: Shape, heads: int) -> Floats:
    values = numbers(name, given)
    if values.shape not in ((heads,), (*lead, heads)):
        expected = f"one number per query head, shape {(heads,)}" + (f" or {(*lead, heads)}" if lead else "")
        raise ShapeError(name, expected, f"shape {values.shape}", f"there are {heads} query heads")
    return np.broadcast_to(values, (*lead, heads))


def _sinks(given: Any, heads: int) -> Floats | None:
    logits = numbers("sinks", given)
    if logits.ndim not in (1, 2) or logits.shape[0] != heads:
        expected = f"one logit per query head, shape {(heads,)}, or several, shape ({heads}, S)"
        raise ShapeError("sinks", expected, f"shape {logits.shape}", f"there are {heads} query heads")
    return logits.reshape(heads, -1) if logits.size else None


def _check_rng(rng: Any) -> None:
    if isinstance(rng, np.random.Generator) or (is_whole(rng) and 0 <= rng < 2**64):
        return
    hint = "rng=0; the same seed drops the same weights for any number of threads"
    raise HeadwiseError(
        "rng", "a seed (a whole number >= 0, < 2**64) or a numpy.random.Generator", shown(rng), hint
    )


def _seed(rng: Any, dropout_p: float) -> int:
    if rng is None:
        expected = f"a seed or a numpy.random.Generator beside dropout_p={dropout_p}"
        raise HeadwiseError("rng", expected, "None", "dropout_p=0.0 outside training; rng=0 is a seed")
    _check_rng(rng)
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**64, dtype=np.uint64))
    return int(rng)
