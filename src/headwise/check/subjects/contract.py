"""What a function promises: how it is called, which options it has, and which rules it has to keep."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headwise.check.subjects.kinds import KINDS
from headwise.errors import HeadwiseError
from headwise.plain.values import shown

FEATURES = (
    "mask", "padding", "bias", "causal", "window", "softcap", "scale", "gqa", "rope", "cache", "layer",
)  # fmt: skip
LAYOUTS = {
    "bhnd": "(B, H, n, d)",
    "bnhd": "(B, n, H, d)",
    "bne": "(B, n, H d)",
    "bnd": "(B, n, d)",
    "hnd": "(H, n, d)",
    "nd": "(n, d)",
}
Function = Callable[..., Any]  # the one under test
_CHOICES: dict[str, tuple[Any, ...]] = {
    "layout": (None, *LAYOUTS),
    "kind": (None, *KINDS),
    "causal_alignment": (None, "upper_left", "lower_right"),
    "mask_means": ("attend", "hide", "add"),
    "empty_rows": ("zero", "mean", "nan", "any"),
}


@dataclass(frozen=True)
class Contract:
    """How a function is called, and what it has to do.

    Attributes:
        name: as in the report.
        call: ``call(fn, case)`` returns the function's output. The arrays of the `Case` are of the function's
            kind and in its ``layout``, and the output is read in that layout. None: found from the signature.
        features: the options that it serves, of ``FEATURES``; None: found from the signature. Grouped heads
            and d_v unlike d_k are then tried, and what is wrong about them is a note.
        always: options that every call has, as {"causal"} for a function that is always causal.
        layout: of queries, keys, values and output, one of ``LAYOUTS``; None: found by trying.
        kind: "numpy", "torch" or "jax"; None: found by trying.
        causal_alignment: where n_q and n_k differ: "upper_left" (key j <= query i), "lower_right"
            (j <= i + n_k - n_q), or None: either will do, and a note says which it is.
        mask_means: of a True in a mask: "attend" or "hide"; "add": masks are 0 and -inf, to be added.
        empty_rows: what a row that sees no key holds: "zero", "mean" (of all values), "nan", or "any".
        interleaved: rotary pairs are (2i, 2i + 1).
        notes: names of rules that are shown and never fail the function.
    """

    name: str = "default"
    call: Callable[[Any, Any], Any] | None = None
    features: Iterable[str] | None = None
    always: Iterable[str] = ()
    layout: str | None = None
    kind: str | None = None
    causal_alignment: str | None = None
    mask_means: str = "attend"
    empty_rows: str = "zero"
    interleaved: bool = False
    notes: Iterable[str] = ("masked NaN", "empty rows", "gradient of empty rows")

    def __post_init__(self) -> None:
        for name in ("features", "always", "notes"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise HeadwiseError(name, "a set of names", shown(value), f"{name}={{{value!r}}}")
            if value is not None:
                object.__setattr__(self, name, frozenset(value))
        for name in ("features", "always"):
            strange = sorted(set(getattr(self, name) or ()) - set(FEATURES))
            if strange:
                raise HeadwiseError(name, f"names among {', '.join(FEATURES)}", ", ".join(strange))
        if self.features is not None:
            object.__setattr__(self, "features", frozenset(self.features) | frozenset(self.always))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                expected = ", ".join(map(str, choices))
                raise HeadwiseError(name, f"one of {expected}", shown(getattr(self, name)))
        if self.call is not None and not callable(self.call):
            raise HeadwiseError(
                "call", "a function of (fn, case)", shown(self.call), "call=lambda fn, case: fn(case.query, "
                "case.key, case.value)",
            )  # fmt: skip

    def but(self, **changes: Any) -> "Contract":
        """The same with some attributes changed."""
        return replace(self, **changes)
