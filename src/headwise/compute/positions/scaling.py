"""Rotary angles beyond the length that a model was trained on: the four scalings that models ship with."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.plain.types import Floats
from headwise.plain.values import is_number, is_whole, shown

KINDS = ("linear", "ntk", "yarn", "llama3")
NEEDS_LENGTH = ("yarn", "llama3")


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """How the frequencies f_i = base^(-2i / width) of rotary embeddings change to cover a longer text.

    * ``linear``: f_i / factor, which is positions divided by factor (Chen et al. 2023, "position
      interpolation").
    * ``ntk``: the base becomes base * factor^(width / (width - 2)), so that the slowest pair turns factor
      times slower and the fastest one as before (the scaling of bloc97, 2023).
    * ``yarn``: pairs that turn more than ``beta_fast`` times within ``original_length`` stay, those that turn
      less than ``beta_slow`` times are divided by factor, the others lie between by the index of the pair;
      cosines and sines are multiplied by ``attention_factor`` (Peng et al. 2023, section 3).
    * ``llama3``: with t = turns within ``original_length``: t > ``high_turns`` stay, t < ``low_turns`` are
      divided by factor, between them f (s + (1 - s) / factor), s = (t - low) / (high - low) (Llama 3.1).

    Attributes:
        kind: one of the four.
        factor: how many times longer, >= 1.
        original_length: tokens that the model was trained on; for yarn and llama3.
        beta_fast, beta_slow: turns, for yarn.
        whole_pairs: yarn rounds its two bounds outwards to whole pairs (``truncate`` in transformers).
        attention_factor: for yarn; None means 1 + ln(factor) / 10.
        low_turns, high_turns: for llama3 (``low_freq_factor``, ``high_freq_factor`` in transformers).

    Raises:
        HeadwiseError: an unknown kind, a factor below 1, a missing length, bounds in the wrong order.
    """

    kind: str
    factor: float
    original_length: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    whole_pairs: bool = True
    attention_factor: float | None = None
    low_turns: float = 1.0
    high_turns: float = 4.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            hint = "dynamic scaling is not served: its angles change with the length, cached keys keep theirs"
            raise HeadwiseError("kind", ", ".join(KINDS), shown(self.kind), hint)
        if not is_number(self.factor) or not 1 <= self.factor < math.inf:
            hint = "factor=4.0 serves four times the length that the model was trained on"
            raise HeadwiseError("factor", "a finite number >= 1", shown(self.factor), hint)
        length = self.original_length
        if self.kind in NEEDS_LENGTH and not (is_whole(length) and length is not None and length >= 1):
            expected = f"a whole number >= 1 for {self.kind}"
            raise HeadwiseError(
                "original_length", expected, shown(length), "the length of the training texts"
            )
        for low, high in (("beta_slow", "beta_fast"), ("low_turns", "high_turns")):
            bounds = getattr(self, low), getattr(self, high)
            if not all(map(is_number, bounds)) or not 0 < bounds[0] < bounds[1] < math.inf:
                hint = "they are turns within the original length"
                raise HeadwiseError(high, f"finite numbers 0 < {low} < {high}", f"{bounds}", hint)
        if self.attention_factor is not None and not (
            is_number(self.attention_factor) and 0 < self.attention_factor < math.inf
        ):
            hint = "None means 1 + ln(factor) / 10 for yarn, 1 for the others"
            raise HeadwiseError("attention_factor", "a finite number > 0", shown(self.attention_factor), hint)

    def frequencies(self, width: int, base: float) -> Floats:
        """The changed frequencies, ``(width / 2,)``: radians per position.

        Raises:
            HeadwiseError: ntk of a single pair, whose frequency is 1 whatever the base; yarn with a base
                that does not order the pairs.
        """
        plain: Floats = np.power(float(base), -np.arange(0, width, 2) / width)
        if self.kind == "linear":
            return plain / self.factor
        if self.kind == "ntk":
            if width < 4:
                raise HeadwiseError(
                    "width", "at least 4 for ntk", str(width), "linear scaling serves width 2"
                )
            wider = base * self.factor ** (width / (width - 2))
            return np.power(wider, -np.arange(0, width, 2) / width)
        assert self.original_length is not None
        if self.kind == "yarn":
            if base <= 1:
                raise HeadwiseError("base", "a number > 1 for yarn", shown(base), "the usual base is 10000")
            # The pair, as a fraction of an index, that turns beta times within the original length.
            low, high = (
                width * math.log(self.original_length / (2 * math.pi * beta)) / (2 * math.log(base))
                for beta in (self.beta_fast, self.beta_slow)
            )
            if self.whole_pairs:
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, width - 1)
            slowed = (np.arange(width // 2) - low) / max(high - low, 0.001)
            share = np.clip(slowed, 0.0, 1.0)
        else:
            turns = self.original_length * plain / (2 * math.pi)
            share = 1 - np.clip((turns - self.low_turns) / (self.high_turns - self.low_turns), 0.0, 1.0)
        return plain * (1 - share) + plain / self.factor * share

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        return 1.0 + 0.1 * math.log(self.factor) if self.kind == "yarn" else 1.0


def rotary_frequencies(width: int, base: float, scaling: Any) -> tuple[Floats, float]:
    """Frequencies ``(width / 2,)`` and the factor of cosines and sines.

    Raises:
        HeadwiseError: ``base`` is not positive, ``scaling`` neither None nor a :class:`RotaryScaling`.
    """
    if not is_number(base) or not 0 < base < math.inf:
        raise HeadwiseError("base", "a finite number > 0", shown(base), "the usual base is 10000")
    if scaling is None:
        return np.power(float(base), -np.arange(0, width, 2) / width), 1.0
    if not isinstance(scaling, RotaryScaling):
        hint = 'RotaryScaling(kind="yarn", factor=4.0, original_length=4096)'
        raise HeadwiseError("scaling", "None or a RotaryScaling", shown(scaling), hint)
    return scaling.frequencies(width, base), scaling.magnitude
