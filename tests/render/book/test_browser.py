"""The book in a real browser: what moves and is computed, what stays hidden, what it remembers."""

from typing import Any

import numpy as np
import pytest

from headwise.costs import cost
from headwise.costs.sweep import EXPONENTIAL
from headwise.learn.book.contents import book_html, lessons
from headwise.learn.book.experiments import attention_row, favourites, four_ways, heads_of, redundancy
from headwise.learn.book.questions import questions
from headwise.learn.curriculum import plain
from headwise.plain.numbers import number
from headwise.reference import reference_attention

PAGE = book_html()
LESSONS = {lesson.key: lesson for lesson in lessons()}
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def lab(page: Any, key: str) -> Any:
    return page.locator(f'[data-lab="{key}"]')


def move(node: Any, value: float) -> None:
    """Put a slider or a field to a value, as a reader's hand would end up doing."""
    node.evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', { bubbles: true })); }",
        str(value),
    )


# ---------------------------------------------------------------- it opens


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_and_keeps_inside_the_window(show: Any, scheme: str) -> None:
    page = show(PAGE, width=1360, color_scheme=scheme)
    assert page.locator("[data-lab]").count() == sum(lesson.lab is not None for lesson in LESSONS.values())
    assert page.locator("[data-lab] h3").count() == page.locator("[data-lab]").count()
    assert page.locator("svg[role=img]").count() >= 6
    for width in (1360, 1000, 700, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        ), width
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    light = f"{colour}.match(/[0-9.]+/g).reduce((a, b) => a + +b, 0)"
    assert (page.evaluate(light) > 600) == (scheme == "light")
    page.click("#theme")
    assert (page.evaluate(light) > 600) != (scheme == "light")


def test_names_for_those_who_listen(show: Any) -> None:
    page = show(PAGE)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, section, nav, svg")]
          .filter(node => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length
            || node.getAttribute("aria-labelledby")))
          .map(node => node.outerHTML)"""
    )
    assert nameless == []


def test_every_claim_holds_at_first(show: Any) -> None:
    page = show(PAGE)
    assert page.locator(".checks li").count() > 25
    assert page.locator(".checks .fails").count() == 0


def test_the_seal_holds(browser: Any, tmp_path: Any) -> None:
    file = tmp_path / "learn.html"
    file.write_text(PAGE, encoding="ascii")
    page = browser.new_page()
    page.goto(file.as_uri())
    assert (
        page.evaluate("fetch('https://example.invalid/').then(() => 'sent', error => error.name)")
        == "TypeError"
    )
    page.close()


# ---------------------------------------------------------------- JavaScript against Python


@pytest.fixture
def compute(show: Any) -> Any:
    """compute("name of a function of the page", [arguments, ...]) -> [result, ...]"""
    page = show(PAGE)

    def each(function: str, cases: list[Any]) -> list[Any]:
        return page.evaluate(f"cases => cases.map(given => {function}(...given))", plain(cases))

    return each


def test_attention(compute: Any) -> None:
    rng, cases, expected, values = np.random.default_rng(0), [], [], []
    for _ in range(100):
        n_q, n_k, d_k, d_v = rng.integers(1, 7, 4)
        q, k, v = (
            rng.normal(size=(n_q, d_k)) * 5,
            rng.normal(size=(n_k, d_k)),
            rng.normal(size=(n_k, d_v)) * 10,
        )
        mask, causal, offset = rng.random((n_q, n_k)) < 0.7, bool(rng.integers(2)), int(rng.integers(-2, 3))
        scale = None if rng.integers(2) else float(rng.normal())
        cases.append((q, k, v, {"mask": mask, "causal": causal, "offset": offset, "scale": scale}))
        expected.append(
            reference_attention(q, k, v, mask, is_causal=causal, query_offset=offset, scale=scale)
        )
    for found, (q, k, v, _), (output, weights, _) in zip(
        compute("attend", cases), cases, expected, strict=True
    ):
        np.testing.assert_allclose(found["weights"], weights, **CLOSE)
        np.testing.assert_allclose(found["output"], output, **CLOSE)
        np.testing.assert_allclose(found["scores"], q @ k.T, **CLOSE)
        assert (np.array(found["weights"])[~np.array(found["seen"])] == 0).all()
        values += [(v, *pair) for pair in zip(found["seen"], found["output"], strict=True)]
    assert max(compute("outside", values)) < 1e-13 * 30
    assert compute("outside", [([[1.0], [2.0]], [True, True], [2.5])]) == [0.5]


def test_a_row(compute: Any) -> None:
    rng = np.random.default_rng(1)
    cases = [
        (s, rng.random(s.size) < 0.8) for s in (rng.uniform(-60, 60, rng.integers(1, 9)) for _ in range(100))
    ]
    found = compute("softmax", cases)
    entropies = compute("entropy", [[weights] for weights in found])
    for weights, entropy, (scores, seen) in zip(found, entropies, cases, strict=True):
        expected = attention_row(scores, seen=seen)
        np.testing.assert_allclose(weights, expected.weights, **CLOSE)
        np.testing.assert_allclose(entropy, expected.entropy if seen.any() else 0, **CLOSE)


def test_blocks_and_ways_to_join(compute: Any) -> None:
    rng = np.random.default_rng(2)
    for _ in range(12):
        h, d, n = rng.integers(1, 5), rng.integers(1, 4), rng.integers(1, 6)
        x, w_q, w_k, w_v, w_o = (rng.normal(size=s) for s in ((n, h * d), *[(h * d, h * d)] * 4))
        causal = bool(rng.integers(2))
        w = {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
        (found,) = compute("multiHead", [(x, w, h, {"causal": causal})])
        heads, weights = heads_of(x, w_q, w_k, w_v, int(h), is_causal=causal)
        np.testing.assert_allclose([one["output"] for one in found["heads"]], heads, **CLOSE)
        np.testing.assert_allclose(found["output"], np.concatenate(list(heads), -1) @ w_o, **CLOSE)
        (ways,) = compute("fourWays", [(heads, w_o)])
        for name, array in four_ways(heads, w_o).items():
            np.testing.assert_allclose(ways[name], array, **CLOSE)
        if h > 1:
            found = compute("overlap", [(weights[0], weights[1])])
            np.testing.assert_allclose(found, redundancy(weights[:2]), **CLOSE)
        t = rng.random()
        np.testing.assert_allclose(compute("mix", [(w_q, w_k, t)])[0], (1 - t) * w_q + t * w_k, **CLOSE)
        np.testing.assert_allclose(compute("difference", [(w_q, w_k)])[0], np.abs(w_q - w_k).max(), **CLOSE)


def test_favourites_and_slices(compute: Any) -> None:
    rng = np.random.default_rng(6)
    grids = [rng.normal(size=rng.integers(1, 9, 2)) for _ in range(50)]
    assert [len(found) for found in compute("favourites", [[grid] for grid in grids])] == [
        favourites(g) for g in grids
    ]
    x = rng.normal(size=(3, 12))
    for h, heads in zip((1, 2, 3, 12), compute("split", [(x, h) for h in (1, 2, 3, 12)]), strict=True):
        np.testing.assert_array_equal(heads, np.array(np.split(x, h, axis=-1)))
        np.testing.assert_array_equal(compute("concatenate", [[heads]])[0], x)


def test_sizes_and_costs(compute: Any) -> None:
    cases = np.random.default_rng(3).integers(1, 65, (60, 4)).tolist()
    for (h, d_k, n, m), found in zip(
        cases, compute("counts", [(h * d_k, h, n, m, EXPONENTIAL) for h, d_k, n, m in cases]), strict=True
    ):
        expected = cost(d_model=h * d_k, heads=h, seq=n, kv_seq=m)
        assert found["parameters"] == expected.parameters
        assert found["perHead"] == expected.layers[0]["parameters.head_q"]
        assert found["matmul"] == expected.flops
        assert found["core"] == expected["flops.scores"] + expected["flops.values"]
        assert found["exponentials"] == expected["flops.exponentials"]
    sweep = LESSONS["cost"].numbers
    shares = [
        found["share"]
        for found in compute("counts", [(512, h, 1024, 1024, EXPONENTIAL) for h in sweep["heads"]])
    ]
    np.testing.assert_allclose(shares, sweep["share"], **CLOSE)


def test_nearest_heads(compute: Any) -> None:
    assert compute("nearest", [(6, 512), (600, 512), (0, 512), (-3, 7)]) == [[4, 8], [512], [1], [1]]
    assert compute("divisors", [[12], [1], [7]]) == [[1, 2, 3, 4, 6, 12], [1], [1, 7]]


def test_numbers_are_written_alike(compute: Any) -> None:
    rng = np.random.default_rng(4)
    values = [*rng.normal(size=150), *10.0 ** rng.uniform(-15, 12, 150), *rng.integers(-(10**6), 10**6, 50)]
    values += [1 - 10.0**-k for k in range(1, 16)] + [
        0.0,
        1 / 3,
        198.201379,
        29.999999938165395,
        2.9999999999999996,
    ]
    values = [float(value) for value in values]
    assert compute("shown", [[value] for value in values]) == [number(value) for value in values]


# ---------------------------------------------------------------- labs


@pytest.mark.parametrize("key", ["C", "D", "E", "G", "edges"])
def test_a_row_at_random_slider_positions(show: Any, key: str) -> None:
    page, rng = show(PAGE), np.random.default_rng(5)
    start = LESSONS[key].lab
    assert start is not None
    here, n = lab(page, key), len(start["scores"])
    low, high = start.get("range", [-10, 10])
    for step in range(5):
        scores = start["scores"] if step == 0 else rng.uniform(low, high, n).round(1).tolist()
        seen = [True] * n if step < 3 else (rng.random(n) < 0.6).tolist()
        for j in range(n):
            move(here.locator("input[type=range]").nth(j), scores[j])
            here.locator("input[type=checkbox]").nth(j).set_checked(seen[j])
        expected = attention_row(scores, start["values"], seen=seen)
        shown = here.locator("table.keys tbody td.number").all_inner_texts()
        assert shown == [number(weight) for weight in expected.weights.tolist()]
        if start["values"]:
            assert here.locator("table.numbers td").first.inner_text() == number(float(expected.output[0]))
        assert here.locator(".checks li").count() >= 2 and here.locator(".checks .fails").count() == 0


def test_scale_and_width(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "F")
    for d_k, divide, factor in (
        (64, "root", 1 / 8),
        (64, "none", 1),
        (64, "width", 1 / 64),
        (16, "root", 1 / 4),
    ):
        move(here.get_by_label("d_k", exact=True), d_k)
        here.locator("select").select_option(divide)
        weights = attention_row([40, 8], scale=factor).weights.tolist()
        assert here.locator("table.keys tbody td.number").all_inner_texts()[1::2] == [
            number(w) for w in weights
        ]


@pytest.mark.parametrize("key", ["A", "causal"])
def test_a_grid_starts_with_the_numbers_of_its_lesson(show: Any, key: str) -> None:
    page = show(PAGE)
    here, found = lab(page, key), LESSONS[key].numbers
    weights = np.array(found.get("all_weights", found["weights"]))
    expected = ["hidden" if w == 0 else number(w) for w in weights.ravel()]
    assert here.locator("button.cell").all_inner_texts() == expected


def test_a_grid_follows_what_is_typed_and_hidden(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "A")
    move(here.get_by_label("Q, row 0, column 0"), -2.5)
    here.locator("button.cell").nth(2).click()
    q, eye = np.array([[-2.5, 0], [0, 1]]), np.eye(2)
    mask = np.array([[True, True], [False, True]])
    _, weights, _ = reference_attention(q, eye, np.array([[2.0, 0], [0, 4]]), mask)
    assert here.locator("button.cell").all_inner_texts() == [
        number(weights[0, 0]),
        number(weights[0, 1]),
        "hidden",
        "1",
    ]
    assert page.evaluate("document.activeElement.dataset.cell") == "1.0"
    here.locator("button.cell").nth(3).click()
    assert "to 0 where no key is seen" in here.inner_text()
    assert here.locator(".checks .fails").count() == 0
    here.get_by_role("button", name="Reset").click()
    assert here.locator("button.cell").all_inner_texts()[0] == "0.669762"


def test_what_is_no_number_changes_nothing(show: Any) -> None:
    page = show(PAGE)
    field = lab(page, "E").get_by_label("score of key 0, as a number")
    before = lab(page, "E").locator("td.number").all_inner_texts()
    for text in ("", "-"):
        field.fill("")
        field.press_sequentially(text)
        assert field.get_attribute("aria-invalid") is not None
        assert lab(page, "E").locator("td.number").all_inner_texts() == before
    field.fill("1")
    assert field.get_attribute("aria-invalid") is None
    assert lab(page, "E").locator("td.number").all_inner_texts()[:2] == ["0.5", "0.5"]


def test_heads_that_do_not_divide_are_explained(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "shapes")
    field = here.get_by_label("h, as a number")
    field.fill("6")
    assert "h = 6 does not divide d" in here.locator(".refused").inner_text()
    assert here.locator(".refused button").all_inner_texts() == ["h = 4 (d_k = 128)", "h = 8 (d_k = 64)"]
    assert here.locator("table.numbers td").first.inner_text() == "64", "the last possible h stays"
    here.locator(".refused button").first.click()
    assert field.input_value() == "4" and here.locator(".refused").inner_text() == ""
    assert here.locator("table.numbers td").first.inner_text() == "128"
    for wrong in ("0", "-8", "2.5", "100000"):
        field.fill(wrong)
        assert here.locator(".refused button").count() >= 1
    move(here.get_by_label("d_model", exact=True), 0)
    assert here.locator(".checks .fails").count() == 0


def test_sliders_move_by_keyboard(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "cost")
    slider = here.get_by_label("h", exact=True)
    slider.focus()
    flops = here.locator("table.numbers td").nth(1).inner_text()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert here.get_by_label("h, as a number").input_value() == "512"
    assert here.locator("table.numbers td").nth(1).inner_text() == flops
    assert here.locator("table.numbers td").nth(2).inner_text() == f"{512 * 1024**2:,}"


def test_two_heads_come_apart(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "diversity")
    slider = here.locator("input[type=range]")
    assert here.locator("table.numbers td.number").all_inner_texts() == ["1", "0"]
    move(slider, 1)
    found = LESSONS["diversity"].numbers
    assert here.locator("table.numbers td.number").all_inner_texts() == [
        number(found["own"]),
        number(found["own_difference"]),
    ]


def test_words_in_another_order(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "positions")
    assert "every word keeps its output" in here.inner_text()
    here.get_by_label("add positions first").check()
    assert number(LESSONS["positions"].numbers["with"]) in here.locator(".checks").inner_text()
    here.get_by_role("button", name="First order").click()
    assert "the same order" in here.locator(".checks").inner_text()
    here.get_by_role("button", name="move dog later").click()
    assert here.locator(".chip b").all_inner_texts() == ["bites", "dog", "man", "today"]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "move dog later"
    assert here.locator(".checks .fails").count() == 0


def test_favourites_get_fewer(show: Any) -> None:
    page = show(PAGE)
    here = lab(page, "narrow")
    for place, (_, d_k, mean) in enumerate(LESSONS["narrow"].numbers["favourites"]):
        move(here.locator("input[type=range]"), place)
        assert here.locator("table.numbers td.number").all_inner_texts() == [str(d_k), number(mean)]
        assert here.locator(".checks .fails").count() == 0


# ---------------------------------------------------------------- answers and progress


def test_answers_are_hidden_until_asked(show: Any) -> None:
    page = show(PAGE)
    assert page.locator(".qa .reply:visible").count() == 0
    one = page.locator("#exercise-4\\.2")
    one.locator("summary").click()
    assert "(0.8847, 2.0124)" in one.locator(".reply").inner_text()
    assert page.locator(".qa .reply:visible").count() == 1
    page.locator("#q-cost summary").focus()
    page.keyboard.press("Enter")
    assert "False." in page.locator("#q-cost .reply").inner_text()


def count_of(page: Any) -> str:
    return page.inner_text("#flash-count")


def test_progress_survives_a_reload(show: Any) -> None:
    page = show(PAGE)
    total = len(questions())
    assert count_of(page) == f"0 of {total} known" and page.inner_text("#flash-reply") == ""
    first = page.inner_text("#flash-ask")
    page.click("#flash-show")
    assert page.inner_text("#flash-reply").startswith("False.")
    page.click("#flash-knew")
    assert count_of(page) == f"1 of {total} known" and page.inner_text("#flash-ask") != first
    page.click("#flash-show")
    page.click("#flash-not")
    page.reload()
    assert count_of(page) == f"1 of {total} known" and page.inner_text("#flash-ask") != first
    page.click("#flash-forget")
    assert count_of(page) == f"0 of {total} known" and page.inner_text("#flash-ask") == first
    page.reload()
    assert count_of(page) == f"0 of {total} known"


def test_one_kind_to_its_end(show: Any) -> None:
    page = show(PAGE)
    page.select_option("#flash-choose", "why")
    total = sum(question.kind == "why" for question in questions())
    for _ in range(total):
        assert page.inner_text("#flash-kind") == "why"
        page.click("#flash-show")
        page.click("#flash-knew")
    assert count_of(page) == f"{total} of {total} known"
    assert "All of these are known" in page.inner_text("#flash-ask")
    assert page.locator("#flash-show").is_hidden() and page.locator("#flash-knew").is_hidden()


STORED = (
    "",
    "null",
    "[]",
    "7",
    "{",
    '{"version": 2, "known": {"cost": true}}',
    '{"version": 1, "known": null}',
    '{"version": 1, "known": {"__proto__": true, "cost": "yes", "nothing": true, "toString": true}}',
    '{"version": 1, "known": ["cost"]}',
)


def test_what_others_stored_is_ignored(show: Any) -> None:
    page = show(PAGE)
    for stored in STORED:
        page.evaluate("text => localStorage.setItem('headwise.learn', text)", stored)
        page.reload()
        assert count_of(page) == f"0 of {len(questions())} known", stored
    page.click("#flash-show")
    page.click("#flash-knew")
    assert count_of(page) == f"1 of {len(questions())} known"


@pytest.mark.parametrize(
    "broken", ["get localStorage() { throw new Error('no'); }", "get localStorage() { return null; }"]
)
def test_a_browser_without_storage(browser: Any, tmp_path: Any, broken: str) -> None:
    file = tmp_path / "learn.html"
    file.write_text(PAGE, encoding="ascii")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(f"Object.defineProperties(window, Object.getOwnPropertyDescriptors({{ {broken} }}))")
    page.goto(file.as_uri())
    page.click("#flash-show")
    page.click("#flash-knew")
    assert count_of(page) == f"1 of {len(questions())} known"
    assert "keeps nothing for this page" in page.inner_text("#flash-memory")
    assert errors == []
    page.close()


def test_a_claim_that_fails_says_so(show: Any) -> None:
    page = show(PAGE)
    html = page.evaluate("claims([['d_k is 1', false, 2], ['h is 1', true, 1]]).outerHTML")
    assert html.count('class="fails"') == 1 and "fails: 2" in html
