"""Costs and sweeps as terminal text and as pages."""

import re

import pytest

from headwise.costs import cost
from headwise.costs.sweep import head_sweep
from headwise.plain.numbers import count
from headwise.render.costs import page, text
from headwise.render.costs.text import broken, to_text
from headwise.render.costs.words import lengths
from tests.render.trace.test_views import Reader

MIXED = {
    "model_type": "gemma2",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 3,
    "sliding_window": 4,
}
COSTS = {
    "one layer": lambda: cost(d_model=512, heads=8, seq=64),
    "a stack": lambda: cost(d_model=768, heads=12, kv_heads=4, layers=12, seq=4096, causal=True, bias=True),
    "no length": lambda: cost(d_model=512, heads=8),
    "two kinds": lambda: cost(MIXED, seq=9),
    "decoding": lambda: cost(MIXED, seq=1, cached=8191, batch=3, cache_bytes=1),
}


@pytest.mark.parametrize("name", COSTS)
def test_every_number_stands_beside_its_formula(name):
    found = COSTS[name]()
    shown = {quantity.key: quantity for quantity in found.totals}
    if len(found.layers) == 1:
        shown = {quantity.key: quantity for quantity in found.layers[0].quantities} | shown
    text = re.sub(r"\s", "", str(found))
    page = re.sub(r"\s", "", Reader(found.to_html()).text)
    for key, quantity in shown.items():
        if key in ("flops.biases", "backward.biases") and not quantity.value:
            continue
        for view in (text, page):
            assert count(quantity.value) in view, key
            assert re.sub(r"[\s_]", "", quantity.formula) in view.replace("_", ""), key
    for note in found.notes:
        assert re.sub(r"\s", "", note) in text


def test_the_page_shows_numbers_put_in():
    page = Reader(cost(d_model=512, heads=8).to_html()).text
    assert "512·8·64" in page and "d_model·h·d_k".replace("_", "") in page


def test_kinds_of_layers_have_letters():
    text = str(cost(MIXED, seq=9))
    assert "k1 = full attention" in text and "k2 = windowed attention" in text
    assert "1·k1 + 2·k2, each 2·B·h·pairs·d_k" in text


def test_lengths_in_words():
    found = COSTS["decoding"]()
    assert lengths(found.work) == (
        "batch 3 · 1 new token · 8,192 keys, 8,191 of them cached · 2 bytes a number · 1 in the cache"
    )


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("name", COSTS)
def test_the_terminal_view_keeps_to_its_width(name, width):
    lines = to_text(COSTS[name]().to_dict(), width).splitlines()
    assert max(map(len, lines)) <= width


LARGE = {
    "a stack": lambda: cost(
        d_model=16384, heads=128, kv_heads=8, layers=128, seq=2**20, batch=999, bias=True
    ),
    "latent": lambda: cost(
        d_model=7168, heads=128, head_dim=128, kv_rank=512, rope_dim=64, q_rank=1536, seq=2**20
    ),
    "two kinds": lambda: cost({**MIXED, "hidden_size": 2**14, "head_dim": 2**10}, seq=2**20, batch=99),
}


@pytest.mark.parametrize("width", [44, 60, 80, 100, 120, 160])
@pytest.mark.parametrize("name", LARGE)
def test_no_number_word_or_formula_is_cut_however_long(name, width):
    found = LARGE[name]()
    text = to_text(found.to_dict(), width)
    assert max(map(len, text.splitlines())) <= width and "\u2026" not in text
    for quantity in found.totals:
        if quantity.value or quantity.key not in ("flops.biases", "backward.biases"):
            assert count(quantity.value) in text, quantity.key
            for word in (*quantity.name.split(), *re.split(r"[ \u00b7]", quantity.formula)):
                assert word in text, (quantity.key, word)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("sizes", [(512, 1024), (2**14, 2**17), (2**14, 2**30)])
def test_a_sweep_at_every_width(sizes, width):
    sweep = head_sweep(*sizes)
    text = to_text(sweep.to_dict(), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width and "\u2026" not in text
    bars = [line.count("\u2588") for line in lines if re.match(r" *[\d,]+ +[\d,]+ ", line)]
    assert len(bars) == len(sweep.rows) and bars == sorted(bars) and (bars[-1] > 0 or width < 80)
    assert count(sweep.rows[0].matmul) in text, "the flat number in full, however narrow the table"
    if width == 120 and sizes[1] < 2**30:
        for row in sweep.rows:
            assert all(count(value) in text for value in (row.matmul, row.scores, row.exponentials))


def test_the_share_can_be_recomputed_from_its_row():
    page = head_sweep(12, 5).to_html()
    rows = re.findall(r"<tr>((?:<td>[^<]*</td>){6})</tr>", page)
    assert len(rows) == 6
    for row in rows:
        *numbers, share = re.findall(r"<td>([^<]*)</td>", row)
        scores, exponentials = (int(number.replace(",", "")) for number in numbers[-2:])
        assert f"{10 * exponentials / (10 * exponentials + scores / 2):.1%}" == share


@pytest.mark.parametrize(
    "formula", ["a\u00b7b + c\u00b7d + e", "abc\u00b7def\u00b7ghi", "x of y / z + w", "n"]
)
@pytest.mark.parametrize("width", [5, 8, 40])
def test_a_formula_breaks_and_loses_nothing(formula, width):
    lines = broken(formula, width)
    assert "".join(lines).replace(" ", "") == formula.replace(" ", "")
    assert all(len(line) <= width for line in lines) and all(line == line.rstrip() for line in lines)
    assert broken("a\u00b7b + c\u00b7d + e", 8) == ["a\u00b7b", "+ c\u00b7d", "+ e"] or width != 8


def test_a_sweep_on_a_page():
    sweep = head_sweep(12, 5)
    page = sweep.to_html()
    reader = Reader(page)
    assert page.isascii() and [tag for tag, _ in reader.tags].count("polyline") == 2
    products, softmax = (
        [tuple(map(float, point.split(","))) for point in attributes["points"].split()]
        for tag, attributes in reader.tags
        if tag == "polyline"
    )
    assert len(products) == len(softmax) == 6
    assert len({y for _, y in products}) == 1, "products stay flat"
    assert all(later[1] < former[1] for former, later in zip(softmax, softmax[1:], strict=False)), (
        "softmax rises"
    )
    assert all("style" not in attributes for _, attributes in reader.tags)
    for row in sweep.rows:
        assert count(row.matmul) in reader.text and count(row.exponentials) in reader.text


def test_names_are_escaped():
    found = cost({**MIXED, "_name_or_path": "<script>alert(1)</script>"})
    assert "<script" not in found.to_html().lower()


@pytest.mark.parametrize("view", [text.render_cost, page.render_cost])
def test_what_is_no_cost_is_refused(view):
    with pytest.raises(
        ValueError, match="expected a dict with schema 'headwise.cost'; received 'headwise.sweep'"
    ):
        view(head_sweep(2, 2).to_dict())


@pytest.mark.parametrize("view", [text.render_sweep, page.render_sweep])
def test_what_is_no_sweep_is_refused(view):
    with pytest.raises(
        ValueError, match="expected a dict with schema 'headwise.sweep'; received 'headwise.cost'"
    ):
        view(cost(d_model=2, heads=1).to_dict())
