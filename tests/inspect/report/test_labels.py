"""Labels follow one table; the most telling heads stand out most from uniform attention."""

import pytest

from headwise.inspect.report.labels import LABELS, label_of, label_table, most_telling, out_of_reach, raised

KEYS = [
    "previous", "next", "special", "first", "induction", "alignment", "entropy_normalized", "max_weight",
]  # fmt: skip


def card(**values):
    """Scores that have no label, but for the given ones; (value, null) or a value with null .02."""
    scores = {key: {"value": 0.1, "null": 0.02, "rows": 10} for key in KEYS}
    for key, given in values.items():
        value, null = given if isinstance(given, tuple) else (given, 0.02)
        scores[key] = {"value": value, "null": null, "rows": 10}
    return scores


def test_the_table():
    conditions = ("score", "threshold", "times_null", "rows")
    table = {row["key"]: tuple(row[part] for part in conditions) for row in label_table({}, cross=True)}
    assert table == {
        "previous": ("previous", 0.5, 5, None),
        "next": ("next", 0.5, 5, None),
        "separator": ("special", 0.6, 5, None),
        "first": ("first", 0.5, 5, None),
        "induction": ("induction", 0.3, 5, 5),
        "aligned": ("alignment", 0.9, None, 10),
        "broad": ("entropy_normalized", 0.9, None, None),
        "unlabelled": (None, None, None, None),
    }
    assert list(table)[-1] == "unlabelled"
    alone = [row["key"] for row in label_table({})]
    assert alone == [key for key in table if key != "aligned"]  # only cross-attention can have it


@pytest.mark.parametrize("label", LABELS[:-1], ids=lambda label: label.key)
def test_a_label_needs_its_threshold(label):
    assert label_of(card(**{label.score: label.threshold})) == label.key
    assert label_of(card(**{label.score: label.threshold - 1e-9})) == "unlabelled"


@pytest.mark.parametrize("label", LABELS[:5], ids=lambda label: label.key)
def test_a_label_needs_five_times_the_null_value(label):
    value = label.threshold + 0.1
    assert label_of(card(**{label.score: (value, value / 5 - 1e-9)})) == label.key
    assert label_of(card(**{label.score: (value, value / 5 + 1e-9)})) == "unlabelled"


def test_induction_needs_five_rows():
    scores = card(induction=0.9)
    assert label_of(scores) == "induction"
    scores["induction"]["rows"] = 4
    assert label_of(scores) == "unlabelled"


def test_labels_that_a_short_text_puts_out_of_reach():
    null = {"previous": 0.25, "special": 0.2, "first": 0.201, "induction": None, "entropy_normalized": 1.0}
    beyond = [row["key"] for row in label_table(null) if not row["reachable"]]
    assert beyond == ["previous", "first"]  # 5 x 0.2 = 1 is still within reach
    need = "cannot be reached, since they need five times what uniform attention gives."
    assert out_of_reach(null, 4) == [
        f"The text is short: with 4 tokens the labels previous token and first token {need}"
    ]
    one = {"induction": 0.9}
    need = "cannot be reached, since it needs five times what uniform attention gives."
    assert out_of_reach(one, 400) == [f"On this text the label induction {need}"]
    assert out_of_reach({"special": 0.3}, 1)[0].startswith(
        "The text is short: with 1 token the label separator"
    )
    assert out_of_reach({"special": 0.2}, 9) == []


def test_labels_that_ask_for_more_than_their_threshold_on_a_text():
    null = {"previous": 0.14, "first": 0.187, "special": 0.3, "induction": 0.06, "entropy_normalized": 1.0}
    assert raised(null) == [
        "Labels that need more on this text: previous token 0.70 instead of 0.50 and first token 0.94 "
        "instead of 0.50, five times what uniform attention gives."
    ]  # special is out of reach, induction asks for its threshold
    assert raised({"first": 0.02, "next": None}) == []


def test_broad_needs_its_threshold_only():
    assert label_of(card(entropy_normalized=(0.95, 1.0))) == "broad"


def test_the_largest_share_of_the_threshold_wins():
    assert label_of(card(first=0.9, special=0.95)) == "first"  # 1.8 against 1.58
    assert label_of(card(first=0.55, special=0.95)) == "separator"
    assert label_of(card(previous=0.5, induction=0.45)) == "induction"


@pytest.mark.parametrize("missing", [(None, None), (None, 0.1), (0.9, None)])
def test_a_missing_number_gives_no_label(missing):
    assert label_of(card(next=missing, induction=missing)) == "unlabelled"


def layers_of(*heads):
    return [
        {
            "layer": 4,
            "heads": [{"head": h, "label": key, "scores": scores} for h, (key, scores) in enumerate(heads)],
        }
    ]


def test_most_telling_heads_come_best_first():
    layers = layers_of(
        ("previous", card(previous=(0.6, 0.1))),
        ("broad", card(entropy_normalized=(0.99, 1.0))),
        ("first", card(first=(0.9, 0.02))),
        ("unlabelled", card(max_weight=(0.4, 0.1))),
    )
    found = most_telling(layers)
    assert [(entry["label"], entry["score"]) for entry in found] == [
        ("first", "first"),
        ("previous", "previous"),
        ("unlabelled", "max_weight"),
        ("broad", "entropy_normalized"),
    ]
    assert found[0] == {
        "layer": 4,
        "head": 2,
        "label": "first",
        "score": "first",
        "value": 0.9,
        "null": 0.02,
        "excess": 0.9 - 0.02,
    }


def test_broad_heads_come_last_whatever_the_others_have():
    found = most_telling(
        layers_of(("broad", card(entropy_normalized=(1.0, 1.0))), ("unlabelled", card(max_weight=(0.1, 0.5))))
    )
    assert [entry["label"] for entry in found] == ["unlabelled", "broad"]


def test_at_most_three_heads_of_a_label():
    heads = [("previous", card(previous=(0.5 + h / 100, 0.1))) for h in range(5)]
    assert [entry["head"] for entry in most_telling(layers_of(*heads))] == [4, 3, 2]


def test_equal_heads_keep_their_order():
    heads = [("first", card(first=(0.7, 0.1))) for _ in range(3)]
    assert [entry["head"] for entry in most_telling(layers_of(*heads))] == [0, 1, 2]


def test_heads_without_numbers_are_left_out():
    assert most_telling(layers_of(("unlabelled", card(max_weight=(None, None))))) == []
