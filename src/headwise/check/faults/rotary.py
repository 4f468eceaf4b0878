"""Mistakes with rotary positions."""

from dataclasses import replace

import numpy as np

from headwise.check.cases import rotation
from headwise.check.cases.case import Case, turn
from headwise.check.cases.chain import Fault, Step, fault
from headwise.plain.types import Array

_PAIRS = "turn the pairs that the weights were trained with: (i, i + d/2) or (2i, 2i + 1), not a mixture"
_BOTH = "turn queries and keys alike, each by its own position"
_ANGLE = "the angle of pair i at position p is p / base^(2i / d)"


def _each(q_rule: Step, k_rule: Step | None = None) -> Step:
    """Turns queries, new keys and past keys by rules on (array, its first position, case)."""

    def step(q: Array, k: Array, past: Array | None, case: Case) -> tuple[Array, Array, Array | None]:
        of_key = q_rule if k_rule is None else k_rule
        q, k = q_rule(q, case.n_past, case), of_key(k, case.n_past, case)
        return q, k, None if past is None else of_key(past, 0, case)

    return step


def _right(x: Array, start: int, case: Case) -> Array:
    return turn(case, x, start)


def _stays(x: Array, start: int, case: Case) -> Array:
    return x


def _with(angles: Step) -> Step:
    """The right pairs by other angles, a rule on (positions, width, base)."""

    def rule(x: Array, start: int, case: Case) -> Array:
        angle = angles(np.arange(start, start + x.shape[-2]), x.shape[-1], case.rotary_base)
        return rotation.interleaved(x, angle) if case.interleaved else rotation.halves(x, angle)

    return rule


def _other_pairs(x: Array, start: int, case: Case) -> Array:
    return turn(replace(case, interleaved=not case.interleaved), x, start)


def _formula(make: Step) -> Step:
    """A rule on (first of the pair, second, cosine, sine) -> both, for half-split pairs."""

    def rule(x: Array, start: int, case: Case) -> Array:
        assert case.rotary_base is not None
        angle = rotation.angles(np.arange(start, start + x.shape[-2]), x.shape[-1], case.rotary_base)
        half = x.shape[-1] // 2
        pair = (x[..., ::2], x[..., 1::2]) if case.interleaved else (x[..., :half], x[..., half:])
        a, b = make(*pair, np.cos(angle), np.sin(angle))
        if not case.interleaved:
            return np.concatenate([a, b], -1)
        return np.stack([a, b], -1).reshape(x.shape)

    return rule


def _mixed(x: Array, start: int, case: Case) -> Array:
    """Frequencies repeated in a row, pairs half a width apart."""
    cos, sin = _tables(x, start, case, lambda t: np.repeat(t, 2, -1))
    half = x.shape[-1] // 2
    return x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def _mixed_other(x: Array, start: int, case: Case) -> Array:
    """Frequencies repeated as a whole, pairs next to each other."""
    cos, sin = _tables(x, start, case, lambda t: np.tile(t, (1, 2)))
    partner = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return x * cos + partner * sin


def _tables(x: Array, start: int, case: Case, spread: Step) -> tuple[Array, Array]:
    assert case.rotary_base is not None
    angle = rotation.angles(np.arange(start, start + x.shape[-2]), x.shape[-1], case.rotary_base)
    return spread(np.cos(angle)), spread(np.sin(angle))


def _first_half_only(positions: Array, width: int, base: float) -> Array:
    return rotation.angles(positions, width, base)[:, : width // 4]


def _partial(x: Array, start: int, case: Case) -> Array:
    angle = _first_half_only(np.arange(start, start + x.shape[-2]), x.shape[-1], case.rotary_base or 1.0)
    return rotation.halves(x, angle)


def _value_turned(q: Array, k: Array, v: Array, case: Case) -> tuple[Array, Array, Array]:
    width = case.query.shape[-1]
    wide = np.concatenate([v, np.zeros((*v.shape[:-1], max(width - v.shape[-1], 0)))], -1)
    return q, k, turn(case, wide[..., :width], 0)[..., : v.shape[-1]]


def _sinusoids(x: Array, start: int, case: Case) -> Array:
    assert case.rotary_base is not None
    angle = rotation.angles(np.arange(start, start + x.shape[-2]), x.shape[-1], case.rotary_base)
    return x + np.concatenate([np.sin(angle), np.cos(angle)], -1)


def _angles(change: Step) -> Step:
    return lambda p, width, base: change(rotation.angles(p, width, base))


def _slower(p: Array, width: int, base: float) -> Array:
    return np.asarray(p[:, None] * base ** (-np.arange(width // 2) / width))


FAULTS: tuple[Fault, ...] = (
    fault("rotary pairs of the other layout", "the other layout's features turn together: (2i, 2i + 1) for "
          "(i, i + d/2), or the reverse", _PAIRS, needs="rope", turned=_each(_other_pairs),
          seen="karpathy/nanochat#264 EleutherAI/gpt-neox#834 keras-team/keras-hub#1416"),
    fault("rotary layouts mixed", "frequencies are repeated in a row, but pairs lie half a width apart",
          _PAIRS, needs="rope", turned=_each(_mixed), seen="raiyanyahya/how-to-train-your-gpt#6"),
    fault("rotary layouts mixed, reverse", "frequencies are repeated as a whole, but neighbours are pairs",
          _PAIRS, needs="rope", turned=_each(_mixed_other)),
    fault("no rotation", "nothing is turned: positions play no part", _BOTH, needs="rope",
          turned=_each(_stays)),
    fault("only queries turned", "queries are turned, keys are not (or all keys as at position 0)", _BOTH,
          needs="rope", turned=_each(_right, _stays)),
    fault("only keys turned", "keys are turned, queries are not", _BOTH, needs="rope",
          turned=_each(_stays, _right)),
    fault("values turned too", "values are turned as well", "only queries and keys turn", needs="rope",
          picked=_value_turned),
    fault("rotation backwards", "queries and keys turn the wrong way (reversed positions, or cosine and sine "
          "swapped, give the same)", "(a, b) -> (a cos - b sin, a sin + b cos)", needs="rope",
          turned=_each(_with(_angles(lambda a: -a)))),
    fault("keys turned backwards", "queries and keys turn in opposite directions", _BOTH, needs="rope",
          turned=_each(_right, _with(_angles(lambda a: -a)))),
    fault("rotated twice", "queries and keys are turned twice", "turn once", needs="rope",
          turned=_each(_with(_angles(lambda a: 2 * a)))),
    fault("base ten times larger", "the base of the wavelengths is ten times too large", _ANGLE, needs="rope",
          turned=_each(_with(lambda p, w, base: rotation.angles(p, w, 10 * base)))),
    fault("base 10000", "the base is 10000 whatever is asked", _ANGLE, needs="rope",
          turned=_each(_with(lambda p, w, base: rotation.angles(p, w, 10000.0)))),
    fault("exponent i/d", "the exponent is i/d instead of 2i/d (or d is doubled)", _ANGLE, needs="rope",
          turned=_each(_with(_slower)), seen="lucidrains/RETRO-pytorch#12"),
    fault("frequencies reversed", "the fastest frequency stands last", _ANGLE, needs="rope",
          turned=_each(_with(_angles(lambda a: a[:, ::-1])))),
    fault("query positions one ahead", "queries start at position 1, keys at 0", _BOTH, needs="rope",
          turned=_each(_with(lambda p, w, base: rotation.angles(p + 1, w, base)), _right)),
    fault("rotation without minus", "the minus sign is missing: a cos + b sin", "a cos - b sin", needs="rope",
          turned=_each(_formula(lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin)))),
    fault("second half from turned first", "the second feature is made of the first one already turned: it "
          "was overwritten in place", "keep the old first feature until both are made", needs="rope",
          turned=_each(_formula(lambda a, b, cos, sin: (
              a * cos - b * sin, b * cos + (a * cos - b * sin) * sin)))),
    fault("half of the features turned", "only the first half of the features is turned",
          "every pair turns, unless the model says otherwise", needs="rope", turned=_each(_partial),
          seen="lucidrains/RETRO-pytorch#12"),
    fault("angle in degrees", "angles are taken for degrees", _ANGLE, needs="rope",
          turned=_each(_with(_angles(np.deg2rad)))),
    fault("sinusoids added", "sinusoidal positions are added instead of a rotation", _BOTH, needs="rope",
          turned=_each(_sinusoids)),
    fault("positions halved", "every angle is half of what it should be", _ANGLE, needs="rope",
          turned=_each(_with(_angles(lambda a: a / 2)))),
)  # fmt: skip
