"""The compact data of a page: what is stored, how exactly, and what goes first when the budget is short."""

import base64
import math
import re
from typing import Any

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.render.report import pack
from headwise.render.report.page import render_html
from headwise.render.report.schema import read
from tests.render.made_pages import data_of, integers, long_page, rows, weights
from tests.render.report.test_parts import two_texts
from tests.render.reports import make_report, own

HALF_STEP = 0.5 / 65534 + 1e-12


def heads_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [head for layer in report["layers"] for head in layer["heads"]]


def test_rows_maps_and_links_come_back_as_they_were() -> None:
    report = make_report(50, layers=2, heads=3)
    data = data_of(render_html(report))
    assert data["leftOut"] == []
    for head, stored in zip(heads_of(report), data["heads"], strict=True):
        found = rows(stored, data)
        assert list(found) == list(range(50))
        for query, pairs in found.items():
            assert [key for key, _ in pairs] == head["rows"]["index"][query]
            for (_, value), expected in zip(pairs, head["rows"]["weight"][query], strict=True):
                assert abs(value - expected) <= HALF_STEP
        cells = weights(stored["map"], data)
        assert (stored["side"], stored["block"]) == (25, 2)
        expected_cells = [value for row in head["pooled"]["map"] for value in row]
        assert max(abs(a - b) for a, b in zip(cells, expected_cells, strict=True)) <= HALF_STEP
        for (query, key, value), link in zip(stored["links"], head["links"], strict=True):
            assert (query, key) == tuple(link[:2]) and math.isclose(value, link[2], rel_tol=1e-4)


def test_scores_come_back_and_equal_nulls_are_stored_once() -> None:
    report = own(make_report(50, layers=2, heads=3))
    report["layers"][1]["heads"][2]["scores"]["self"]["null"] = 0.5
    report["layers"][0]["heads"][0]["scores"]["self"]["value"] = None
    values = data_of(render_html(report))["values"]
    assert values["entropy"]["null"] == pytest.approx(math.log(50), rel=1e-4)
    assert values["self"]["null"] == [0.02] * 5 + [0.5]
    assert values["self"]["value"][0] is None
    for at, head in enumerate(heads_of(report)):
        for key, cell in head["scores"].items():
            if cell["value"] is not None:
                assert values[key]["value"][at] == pytest.approx(cell["value"], rel=1e-4)


def test_missing_entries_stay_missing() -> None:
    report = own(make_report(["a", "b"], layers=1, heads=1))
    head = report["layers"][0]["heads"][0]
    head["rows"] = {"queries": None, "index": [[0, -1], [-1, -1]], "weight": [[1.0, 0.0], [0.0, 0.0]]}
    head["pooled"] = {"block": 1, "map": [[1.0, 0.0], [None, None]]}
    head["scores"]["entropy"]["value"] = float("nan")
    data = data_of(render_html(report))
    assert rows(data["heads"][0], data) == {0: [(0, 1.0)], 1: []}
    assert weights(data["heads"][0]["map"], data) == [1.0, 0.0, None, None]
    assert data["values"]["entropy"]["value"] == [None]


def test_long_texts_take_wider_indices() -> None:
    n = 70_000
    report = own(make_report(3, layers=1, heads=1))
    report["tokens"], report["text"]["n_tokens"], report["special"] = ["w"] * n, n, []
    report["sequences"] = [{"name": "text", "tokens": report["tokens"], "special": []}]
    head = report["layers"][0]["heads"][0]
    head["rows"] = {"queries": None, "index": [[n - 1 - i] for i in range(n)], "weight": [[0.5]] * n}
    head["pooled"] = {"block": n // 2, "map": [[0.5, 0.5], [0.5, 0.5]]}
    head["links"] = [[0, n - 1, 0.5]]
    data = data_of(render_html(report))
    assert data["encoding"]["indexBytes"] == 4
    assert rows(data["heads"][0], data)[0] == [(n - 1, 0.5)]


@pytest.mark.parametrize(
    ("tokens", "layers", "heads", "budget"),
    [
        (300, 6, 12, 5_000_000), (512, 6, 12, 5_000_000), (512, 6, 12, 1_000_000), (512, 6, 12, 500_000),
        (512, 6, 12, 300_000), (2000, 30, 9, 5_000_000), (1, 1, 1, 100_000),
    ],
)  # fmt: skip
def test_the_page_stays_within_the_budget_and_uses_it(
    tokens: int, layers: int, heads: int, budget: int
) -> None:
    page = long_page(tokens, layers, heads, budget)
    data = data_of(page)
    assert len(page.encode("utf-8")) <= budget
    size = data["encoding"]["indexBytes"]
    kept = {len(integers(head["keys"], size)) // head["perRow"] for head in data["heads"]}
    assert len(kept) == 1, "every head keeps equally many rows"
    if kept == {tokens}:
        assert data["leftOut"] == []
        return
    assert len(page) > 0.98 * budget, "room was left unused"
    assert f"its {kept.pop()} query tokens" in data["leftOut"][0]
    assert f"out of {tokens:,}" in data["leftOut"][0] and f"under {budget / 1e6:g} MB" in data["leftOut"][0]


def test_the_strongest_rows_stay() -> None:
    report = make_report(300, 6, 12)
    data = data_of(long_page(300, 6, 12, 600_000))
    for head, stored in zip(heads_of(report), data["heads"], strict=True):
        found = rows(stored, data)

        def strength(query: int, head: dict[str, Any] = head) -> float:
            if query in (0, 299):
                return -1.0
            pairs = zip(head["rows"]["index"][query], head["rows"]["weight"][query], strict=True)
            return max([weight for key, weight in pairs if key not in (0, 299, query)], default=0.0)

        weakest_kept = min(strength(query) for query in found)
        assert all(strength(query) <= weakest_kept for query in range(300) if query not in found)
        query = next(iter(found))
        assert [key for key, _ in found[query]] == head["rows"]["index"][query]


def test_coarser_maps_come_after_fewer_rows_and_are_said() -> None:
    fine = data_of(long_page(300, 6, 12, 800_000))
    coarse = data_of(long_page(300, 6, 12, 300_000))
    assert {head["side"] for head in fine["heads"]} == {43} and len(fine["leftOut"]) == 1
    assert {(head["side"], head["block"]) for head in coarse["heads"]} == {(22, 14)}
    assert coarse["leftOut"][1].startswith("The maps are 2 times coarser")


def test_a_coarser_map_is_the_mean_over_queries_of_sums_over_keys() -> None:
    report = make_report(301, 6, 12)  # 43 blocks of 7: the last merged cell holds one block
    data = data_of(render_html(report, 300_000))
    for head, stored in zip(heads_of(report), data["heads"], strict=True):
        fine, coarse = head["pooled"]["map"], weights(stored["map"], data)
        side = stored["side"]
        assert side == 22
        for i, j in ((0, 0), (3, 17), (21, 5), (21, 21)):
            queries, keys = range(2 * i, min(2 * i + 2, 43)), range(2 * j, min(2 * j + 2, 43))
            expected = sum(fine[q][k] for q in queries for k in keys) / len(queries)
            assert abs(coarse[i * side + j] - expected) <= HALF_STEP


def test_rows_that_see_nothing_do_not_count_in_a_coarser_map() -> None:
    report = own(make_report(300, 6, 12))
    for head in heads_of(report):
        head["pooled"]["map"][0] = [None] * 43
        head["pooled"]["map"][2] = head["pooled"]["map"][3] = [None] * 43
    data = data_of(render_html(report, 300_000))
    cells = weights(data["heads"][0]["map"], data)
    fine = heads_of(report)[0]["pooled"]["map"]
    assert abs(cells[0] - (fine[1][0] + fine[1][1])) <= HALF_STEP
    assert cells[22:44] == [None] * 22


def test_panels_of_heads_go_before_rows_do_and_that_is_said() -> None:
    report = read(own(make_report(300, 6, 12)))
    for head in heads_of(report):
        head["distances"] = {"least": [0, 1, 2, 4], "mass": [0.1, 0.2, 0.3, 0.4], "null": [0.25] * 4}
    whole, short = (data_of(render_html(report, budget)) for budget in (5_000_000, 300_000))
    for head in whole["heads"]:
        ((title, _, _, _, ((_, _, rows),)),) = head["panels"]
        assert whole["phrases"][title] == "By distance"
        assert [whole["phrases"][cell] for row in rows for cell in row[:2]] == [
            "0", "0.10", "1", "0.20", "2\u20133", "0.30", "4 and more", "0.40"
        ]  # fmt: skip
    assert all(head["panels"] == [] for head in short["heads"])
    assert short["leftOut"][-1] == "Left out of each head, also to stay under 0.3 MB: “By distance”."


def test_a_budget_that_is_too_small_names_one_that_is_not() -> None:
    report = make_report(300, 6, 12)
    with pytest.raises(HeadwiseError) as caught:
        render_html(report, 50_000)
    message = str(caught.value)
    assert "budget: expected at least" in message and "received 50,000" in message and "Hint:" in message
    least = int(re.findall(r"at least ([\d,]+) bytes", message)[0].replace(",", ""))
    assert len(render_html(report, least)) <= least
    with pytest.raises(HeadwiseError):
        render_html(report, least - 2_000)


def test_several_texts_stand_one_after_the_other() -> None:
    data = pack._data(read(two_texts()), 10**6, None, 1, pack._panels(read(two_texts()), True))
    assert data["tokens"] == ["a", "b", "c", "v", "w", "x", "y", "z"]
    assert data["special"] == [0, 2, 7]
    cross = data["heads"][2]
    assert cross["links"] == [[1, 6, 0.75], [0, 5, 0.5]] and cross["strongest"] == [1, 6, 0.75]
    assert cross["side"] == 0 and data["heads"][0]["side"] == 3
    assert (cross["causal"], cross["firstQuery"], cross["sees"]) == (False, 0, 5)
    keys = np.frombuffer(base64.b64decode(cross["keys"]), "<u2").tolist()
    assert keys == [6, 7, 6, 3, 4, 5]
    assert "The words of text and source stand one after the other" in data["notes"][-1]


def test_rows_of_passages_keep_their_places() -> None:
    report = read(own(make_report(["a", "b", "c", "d"], layers=1, heads=1)))
    head = report["layers"][0]["heads"][0]
    head["rows"] = {"queries": [1, 3], "index": [[2, 0], [0, 1]], "weight": [[0.6, 0.2], [0.5, 0.4]]}
    (found,) = pack._data(read(report), 10**6, None, 1, pack._panels(report, True))["heads"]
    assert np.frombuffer(base64.b64decode(found["queries"]), "<u2").tolist() == [1, 3]
    (fewer,) = pack._data(read(report), 10**6, 1, 1, pack._panels(report, True))["heads"]
    assert np.frombuffer(base64.b64decode(fewer["queries"]), "<u2").tolist() == [1]
    assert pack._rows_held(report) == 2
