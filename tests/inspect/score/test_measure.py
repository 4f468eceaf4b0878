"""A score is one thing: its words and its sum. What is written here once is found everywhere."""

import dataclasses

import numpy as np

from headwise.inspect import inspect_qk
from headwise.inspect.report import card
from headwise.inspect.score import measure
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import mean_over

HALF = Score(
    "half",
    "Half of the largest weight",
    "",
    "half of the largest weight of a query, mean over queries",
    "the mean of 1 / 2n",
    "sharp",
    measure=lambda m: mean_over(m.row("max_weight") / 2, m.of, m.of),
    both_readings=True,
    tells_share=True,
)


def inspected():
    return inspect_qk(*np.random.default_rng(0).standard_normal((2, 4, 9, 16)), is_causal=True)


def test_a_score_that_is_written_in_one_place_is_in_the_table_and_in_every_cell(monkeypatch):
    monkeypatch.setattr(measure, "SCORES", (*measure.SCORES, HALF))
    monkeypatch.setitem(card.BY_KEY, HALF.key, HALF)
    report = inspected()
    (line,) = [line for line in report.scores if line["key"] == "half"]
    assert line == {name: getattr(HALF, name) for name in card.TOLD} | {"range": None}
    for head in report.layers[0]["heads"]:
        cell, whole = head["scores"]["half"], head["scores"]["max_weight"]
        assert cell["value"] == whole["value"] / 2 and cell["null"] == whole["null"] / 2
        assert (cell["rows"], cell["share"], cell["all_rows"]) == (9, 1.0, cell["value"])
    assert ",half," in report.to_csv()


def test_every_score_is_measured_read_or_watched():
    watched = {"pair_accuracy", "pair_mass", "pair_matched", "retrieval", "retrieval_counted"}
    assert {score.key for score in card.SCORES if score.measure is score.read is None} == watched


def test_a_statistic_is_asked_for_by_the_scores_that_need_it(monkeypatch):
    """Where no score asks for token matches, the kernel does not look for them."""
    query, key = np.random.default_rng(0).standard_normal((2, 4, 9, 16))

    def induction():
        report = inspect_qk(query, key, ids=[1, 2, 3] * 3, is_causal=True)
        return report.layers[0]["heads"][0]["scores"]["induction"]["value"]

    assert induction() is not None
    silent = [dataclasses.replace(score, asks=tuple({*score.asks} - {"matches"})) for score in measure.SCORES]
    monkeypatch.setattr(measure, "SCORES", tuple(silent))
    assert induction() is None
