"""What a report must look like: anything else is one clear error, and never a traceback in a picture."""

import copy
import json
import random
from typing import Any

import pytest

from headwise.errors import HeadwiseError
from headwise.render.report.page import render_html
from headwise.render.report.schema import SCHEMA, VERSION, read
from headwise.render.report.text import render_head, to_text
from headwise.render.terminal import as_string
from tests.render.reports import make_report, own


def current() -> dict[str, Any]:
    """A small report of this version, with every optional part."""
    report = read(own(make_report(layers=2, heads=2)))
    head = report["layers"][0]["heads"][0]
    head["offsets"] = {"at": [-1, 0, 1], "mass": [0.5, None, 0.1], "argmax": [0.2, 0.8, None]}
    head["received"] = {"heaviest": [[2, 3.0, 0.4]], "sinks": [[0, 0.5]]}
    place = {"layer": 0, "head": 1}
    report["pairs"] = {
        "many": 2, "candidates": 4, "both_ways": True,
        "best": [{**place, "value": 0.5, "null": 0.1, "mass": 0.3, "matched": None}],
    }  # fmt: skip
    head["distances"] = {"least": [0, 1, 2], "mass": [0.2, 0.3, 0.5], "null": [0.1, 0.2, 0.7]}
    report["sinks"] = {"heads": 4, "thresholds": [0.3, 0.8], "keys": [{"key": 0, "shares": [0.75, 0.25]}]}
    report["needle"] = {
        "keys": "text", "start": 2, "stop": 5, "steps": 6, "possible": 4, "threshold": 0.1, "heads": 4,
        "above": 1, "best": [{**place, "value": 0.667, "null": 0.05, "counted": 1.0}],
    }  # fmt: skip
    names = ("induction", "induction_control", "induction_null", "induction_entry", "preceding", "previous",
             "previous_all", "previous_null")  # fmt: skip
    report["probe"] = {
        "tokens": 101, "block": 25, "repeats": 4, "sequences": 4, "seed": 0,
        "heads": [{**place, **dict.fromkeys(names, 0.25)}, {"layer": 1, "head": 0, **dict.fromkeys(names)}],
    }  # fmt: skip
    report["redundancy"] = {
        "threshold": 0.05, "rows": 13, "verified": 6,
        "pairs": [{"a": [0, 0], "b": [1, 1], "js": 0.01, "exact": True}], "clusters": [[[0, 0], [1, 1]]],
    }  # fmt: skip
    report["rollout"] = {"groups": [[0, 6], [6, 13]], "map": [[1, 0], [0.5, 0.5]], "last": [0.5, 0.5]}
    return json.loads(json.dumps(report))


def draw(report: Any) -> None:
    to_text(report)
    render_html(report)
    for layer in read(report)["layers"]:
        for head in layer["heads"]:
            as_string(render_head(report, layer["layer"], head["head"]))


def test_a_report_of_this_version_is_left_as_it_is() -> None:
    report = current()
    assert (report["schema"], report["version"]) == (SCHEMA, VERSION)
    before = copy.deepcopy(report)
    assert read(report) == before == report
    draw(report)


def test_a_report_from_before_a_part_was_added_is_still_read() -> None:
    report = current()
    del report["needle"], report["sinks"], report["layers"][0]["heads"][0]["distances"]
    assert read(report) == {**report, "needle": None, "sinks": None}
    draw(report)


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    return found + [place for name, item in items for place in places(item, (*path, name))]


WRONG = [None, "x", -7, 2.5, 10**9, True, [], {}, [[]], {"a": 1}, float("nan"), "\ud800"]


@pytest.mark.parametrize("seed", range(150))
def test_one_changed_part_is_drawn_or_refused(seed: int) -> None:
    """Any one part replaced, removed or doubled: a picture or a HeadwiseError, never anything else."""
    rng = random.Random(seed)
    report = current()
    for _ in range(rng.choice([1, 1, 2, 5])):
        path = rng.choice(places(report))
        inside = report
        try:
            for name in path[:-1]:
                inside = inside[name]
            inside[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took that part away
        if rng.random() < 0.2 and isinstance(inside, (dict, list)):
            del inside[path[-1]]
        elif isinstance(inside, (dict, list)):
            inside[path[-1]] = rng.choice(WRONG)
    try:
        draw(report)
    except HeadwiseError as error:
        assert str(error).startswith(("report: expected", "budget: expected"))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("tokens", 3), 7, r"expected tokens\[3\] to be a text; received 7"),
        (("text", "n_tokens"), 9, "expected text.n_tokens to be 13, the number of tokens; received 9"),
        (("special",), [13], "expected special to be positions from 0 to 12; received 13"),
        (("layers",), [], "expected layers to be at least one layer with at least one head; received list"),
        (("scores",), [], "expected scores to be at least one score"),
        (("layers", 1, "keys"), "other", r"expected layers\[1\].keys to be one of text; received 'other'"),
        (("layers", 0, "heads", 1, "scores", "entropy", "value"), "high",
         r"expected layers\[0\].heads\[1\].scores.entropy.value to be a number or null; received 'high'"),
        (("layers", 0, "heads", 0, "rows", "index", 2, 0), 13,
         r"expected layers\[0\].heads\[0\].rows.index\[2\] to be positions from -1 to 12; received 13"),
        (("layers", 0, "heads", 0, "links", 0, 1), -1, r"links to be positions from 0 to 12; received -1"),
        (("layers", 0, "heads", 0, "pooled", "map", 1), [0.5], r"pooled.map\[1\] to be as long as"),
        (("layers", 0, "heads", 0, "pooled", "block"), 0, "pooled.block to be at least 1; received 0"),
        (("telling", 0, "head"), 99, r"expected telling\[0\] to be about a head of the report"),
        (("telling", 0, "score"), "x", r"expected telling\[0\].score to be one of the scores; received 'x'"),
        (("sinks", "keys", 0, "key"), 13, r"sinks.keys\[0\].key to be positions from 0 to 12; received 13"),
        (("layers", 0, "heads", 0, "distances", "mass"), 1, r"\[0\].distances.mass to be a list; received 1"),
        (("rollout", "map", 0), "x", r"expected rollout.map\[0\] to be a list; received 'x'"),
        (("labels", 0, "reachable"), 1, r"expected labels\[0\].reachable to be true or false; received 1"),
    ],
)  # fmt: skip
def test_the_message_names_the_part(path: tuple[Any, ...], value: Any, message: str) -> None:
    report = current()
    inside: Any = report
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    with pytest.raises(HeadwiseError, match=message):
        read(report)


def test_a_missing_part_is_named() -> None:
    report = current()
    del report["layers"][1]["heads"][0]["pooled"]
    with pytest.raises(HeadwiseError, match=r"received a report without layers\[1\].heads\[0\].pooled"):
        read(report)


@pytest.mark.parametrize("part", ["layers", "tokens", "scores", "labels", "model"])
def test_a_broken_report_is_refused(part: str) -> None:
    for value in (None, 7, "x", [3], [[]], {}):
        report = own(make_report(layers=1, heads=1))
        report[part] = value
        with pytest.raises(HeadwiseError, match="report: expected"):
            read(report)
