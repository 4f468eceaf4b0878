"""The words that both pictures share."""

import pytest

from headwise.errors import HeadwiseError
from headwise.render.report import words
from headwise.render.report.schema import read
from tests.render.reports import make_report, own


def test_a_link_reads_as_a_sentence() -> None:
    assert words.link("it", "cat", 0.41) == '"it" → "cat" .41'


def test_rules_name_the_score_and_both_thresholds() -> None:
    head = {"scores": {"special": {"value": 0.83, "null": 0.0417, "share": None}}}
    label = {"name": "separator", "score": "special", "threshold": 0.6, "times_null": 5}
    names = {"special": "Special tokens"}
    assert words.rule(label, head, names) == "special tokens: 0.83 ≥ 0.6 and ≥ 5 × 0.04"
    assert words.rule({**label, "times_null": None}, head, names) == "special tokens: 0.83 ≥ 0.6"
    assert words.general_rule(label, names) == "special tokens ≥ 0.6 and ≥ 5 × uniform"
    unlabelled = {"name": "unlabelled", "score": None, "threshold": None, "times_null": None}
    assert words.rule(unlabelled, head, names) == "unlabelled: no rule matched"
    assert words.general_rule(unlabelled, names) == "no rule matched"


def test_letters_are_one_each() -> None:
    labels = [{"key": key, "name": key} for key in ("separator", "self", "sink", "sss", "unlabelled")]
    found = words.letters(labels)
    assert found == {"separator": "S", "self": "E", "sink": "I", "sss": "A", "unlabelled": "·"}


SAME = (
    "Self-test on 24 tokens: with headwise attached the model’s outputs are exactly the same (max |Δ| = 0)."
)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({"max_abs_difference": 0.0}, SAME),
        (
            {"max_abs_difference": 0.0, "causal_leak": 0.0},
            SAME + " Changing a later token changed no earlier output.",
        ),
        (
            {"max_abs_difference": 0.0, "causal_leak": 0.5},
            SAME + " Changing a later token moved an earlier output by up to 0.5: it must not.",
        ),
        (
            {"max_abs_difference": 3.14e-7},
            SAME.replace("are exactly the same (max |Δ| = 0)", "move by at most 3.1e-07 (max |Δ|)"),
        ),
        ({"max_abs_difference": None}, "Self-test: not run."),
    ],
)
def test_the_self_test_in_plain_words(found: dict[str, float | None], sentence: str) -> None:
    assert words.self_test({"tokens": 24, **found}) == sentence


def test_the_self_test_of_a_model_that_reads_no_text() -> None:
    sentence = words.self_test({"tokens": 0, "max_abs_difference": 0.0, "causal_leak": None})
    assert sentence.startswith("Self-test on the whole input: with headwise attached")


def test_without_a_self_test_it_says_so() -> None:
    assert words.self_test(None) == "Self-test: not run."


def test_ranges() -> None:
    assert words.span({"unit": ""}, 24) == (1.0, "0 to 1")
    assert words.span({"unit": "tokens"}, 24) == (23.0, "0 to 23 tokens")
    top, sentence = words.span({"unit": "nats"}, 24)
    assert (round(top, 4), sentence) == (3.1781, "0 to 3.18 nats (ln 24)")
    assert words.span({"unit": "nats"}, 1)[0] == 0.0


def test_the_subject_says_where_the_text_came_from() -> None:
    report = make_report(["hi"], 1, 1)
    assert words.subject(report) == "1 layer × 1 head, 1 token of the built-in example"
    assert words.subject(report | {"text": {"source": "a\nb.txt", "n_tokens": 2000}}).endswith(
        "2,000 tokens from a\\nb.txt"
    )
    assert words.subject(report | {"text": {"source": "command line", "n_tokens": 2}}).endswith(
        "2 tokens from the command line"
    )
    assert words.subject(report | {"text": {"source": None, "n_tokens": 2}}).endswith("2 tokens")


def test_the_strongest_link_of_a_head_that_rests_on_special_tokens() -> None:
    head = {
        "links": [[1, 2, 0.2]],
        "rows": {
            "index": [[0, 1], [0, 1], [2, 0], [-1, -1]],
            "weight": [[0.9, 0.1], [0.7, 0.3], [0.8, 0.2], [0, 0]],
        },
    }
    assert words.strongest(head, {"score": "special"}, [0, 3]) == (1, 0, 0.7)
    assert words.strongest(head, {"score": "max_weight"}, [0, 3]) == (1, 2, 0.2)
    assert words.strongest({**head, "links": []}, {"score": None}, []) is None


def test_the_strongest_link_of_an_unlabelled_head_without_strong_links() -> None:
    rows = {
        "index": [[0, 1], [1, 0], [0, 2], [0, -1]],
        "weight": [[0.9, 0.1], [0.5, 0.3], [0.8, 0.2], [1, 0]],
    }
    head = {"links": [[1, 2, 0.09]], "rows": rows}
    unlabelled, broad = {"score": None}, {"score": "entropy_normalized"}
    assert words.strongest(head, unlabelled, [0, 3]) == (2, 0, 0.8)  # to a special token
    assert words.strongest(head, unlabelled, [0, 2, 3]) == (1, 1, 0.5)  # to itself
    assert words.strongest(head, broad, [0, 3]) == (1, 2, 0.09)
    assert words.strongest({**head, "links": [[1, 2, 0.1]]}, unlabelled, [0, 3]) == (1, 2, 0.1)
    weak = {"index": [[0]], "weight": [[0.05]]}
    assert words.strongest({**head, "rows": weak}, unlabelled, []) == (1, 2, 0.09)
    assert words.strongest({**head, "rows": {"index": [], "weight": []}}, unlabelled, []) == (1, 2, 0.09)


def test_the_link_that_counts_tells_an_induction_head() -> None:
    head = {"links": [[1, 2, 0.9]], "evidence": [3, 2, 0.4], "rows": {"index": [], "weight": []}}
    assert words.strongest(head, {"score": "induction"}, []) == (3, 2, 0.4)
    assert words.strongest({**head, "evidence": None}, {"score": "induction"}, []) == (1, 2, 0.9)


def test_the_strongest_link_of_a_pronoun() -> None:
    report = own(make_report())
    assert words.pronoun_link(report) == (5, 11, 8, 2)
    for head in report["layers"][-1]["heads"]:
        head["rows"]["index"][8] = [0, 8, 9, -1, -1, -1]  # special, itself, a later word
    assert words.pronoun_link(report) is None
    assert words.pronoun_link(make_report(["a", "cat"], 1, 1)) is None
    assert words.pronoun_link(report | {"layers": [{"layer": 0, "heads": []}]}) is None


def test_labels_out_of_reach_are_named_beside_an_unlabelled_head() -> None:
    labels = [{"name": "a"}, {"name": "b", "reachable": False}, {"name": "c", "reachable": True}]
    assert words.no_rule(labels[::2]) == "No rule of the table below matched."
    assert words.no_rule(labels) == "No rule of the table below matched; on this text b cannot be reached."
    three = [{"name": name, "reachable": False} for name in "xyz"]
    assert "on this text x, y and z cannot be reached." in words.no_rule(three)


def test_a_rule_about_rows() -> None:
    label = {"name": "induction", "score": "induction", "threshold": 0.3, "times_null": 5, "rows": 5}
    head = {"scores": {"induction": {"value": 0.61, "null": 0.02, "share": 0.5, "rows": 16}}}
    assert words.rule(label, head, {}) == "induction: 0.61 ≥ 0.3 and ≥ 5 × 0.02, in 16 ≥ 5 rows"
    expected = "induction ≥ 0.3 and ≥ 5 × uniform, in ≥ 5 rows with a possible match"
    assert words.general_rule(label, {}) == expected
    assert words.in_rows(head["scores"]["induction"], 32) == "in 16 of 32 rows"
    assert words.in_rows({"share": None, "rows": 32}, 32) == words.in_rows({"share": 0.5}, 32) == ""


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ([], "report: expected a dict with schema 'headwise.report'; received 'list'."),
        ({}, "report: expected a dict with schema 'headwise.report'; received None."),
        ({"schema": "headwise.report", "version": 3}, "report: expected version 2; received version 3."),
    ],
)
def test_what_is_no_report_is_refused(report: object, message: str) -> None:
    with pytest.raises(HeadwiseError) as caught:
        read(report)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
