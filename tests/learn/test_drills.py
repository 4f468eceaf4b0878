"""Drills grade their own answer right and a perturbed one wrong; the listings are really broken."""

import re

import numpy as np
import pytest

from headwise.compute.block import multi_head_attention
from headwise.errors import HeadwiseError
from headwise.learn.drills.drill import MAKERS, make_drill
from headwise.learn.listings import CAUSAL, PLAIN, WRONG_LINES

SEEDS = 1000


def perturbed(drill):
    """Answers of the right form that are wrong: one number just out of its tolerance, another choice."""
    if drill.choices:
        return [letter for letter in drill.choices if letter != drill.answer]
    step = 1 if drill.tolerance == 0 else 1.01 * drill.tolerance
    wrong = []
    for i in range(len(drill.expected)):
        for sign in (1, -1):
            moved = list(drill.expected)
            moved[i] += sign * step
            wrong.append(" ".join(map(repr, moved)))
    return wrong


@pytest.mark.parametrize("level", MAKERS)
def test_a_thousand_of_each_level(level):
    kinds = set()
    for seed in range(SEEDS):
        drill = make_drill(level, seed)
        kinds.add(drill.kind)
        assert drill.grade(drill.answer).right, drill
        for wrong in perturbed(drill):
            assert not drill.grade(wrong).right, (drill, wrong)
        if drill.tolerance:
            assert f"{drill.tolerance:g}" in drill.question
    assert len(kinds) == len(MAKERS[level])


@pytest.mark.parametrize("level", MAKERS)
def test_the_same_seed_gives_the_same_drill(level):
    assert [make_drill(level, seed) for seed in range(8)] == [make_drill(level, seed) for seed in range(8)]
    assert len({make_drill(level, seed).question for seed in range(40)}) > 20


@pytest.mark.parametrize("level", MAKERS)
def test_solutions_hold_the_answer(level):
    """Each solution says the numbers of the answer; a trace in it has only checks that hold."""
    for seed in range(12):
        drill = make_drill(level, seed)
        assert drill.solution
        if drill.trace is not None:
            assert drill.trace.holds and str(drill.trace) in drill.solution
        digits = re.sub(r"[,\u2212]", lambda m: "" if m[0] == "," else "-", drill.solution)
        for value in drill.expected:
            assert re.search(rf"(?<![\d.]){re.escape(f'{value:.10g}'[:5])}", digits), (drill.question, value)


@pytest.mark.parametrize("level", [0, 6, 1.0, True, "1", None])
def test_other_levels_are_refused(level):
    with pytest.raises(HeadwiseError, match="level: expected a whole number from 1 to 5"):
        make_drill(level, 0)


@pytest.mark.parametrize("seed", [-1, 0.5, None, True])
def test_other_seeds_are_refused(seed):
    with pytest.raises(HeadwiseError, match="seed: expected a whole number of at least 0"):
        make_drill(1, seed)


# ---------------------------------------------------------------- listings


def run(lines, inputs, h):
    names = {"np": np, "h": h, **inputs}
    with np.errstate(all="ignore"):
        exec("\n".join(lines), names)
    return names["out"]


def inputs_of(seed):
    rng = np.random.default_rng(seed)
    names = ("x", "W_Q", "W_K", "W_V", "W_O")
    shapes = [(5, 6), *[(6, 6)] * 4]
    return {name: rng.normal(size=shape) for name, shape in zip(names, shapes, strict=True)}


def right(inputs, causal):
    x, w_q, w_k, w_v, w_o = inputs.values()
    return multi_head_attention(x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, num_heads=2, is_causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_the_listings_are_right(causal):
    inputs = inputs_of(0)
    np.testing.assert_allclose(run(CAUSAL if causal else PLAIN, inputs, 2), right(inputs, causal), rtol=1e-12)


@pytest.mark.parametrize("line", WRONG_LINES, ids=lambda line: line.key)
def test_every_fault_is_one(line):
    lines, number = line.listing()
    whole = CAUSAL if line.causal else PLAIN
    assert [i for i, (a, b) in enumerate(zip(lines, whole, strict=True), 1) if a != b] == [number]
    for seed in range(3):
        inputs = inputs_of(seed)
        difference = run(lines, inputs, 2) - right(inputs, line.causal)
        assert not np.abs(difference).max() < 0.01, "NaN counts as wrong"
