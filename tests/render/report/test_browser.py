"""The page in a real browser. Every test also asks that nothing was logged or fetched (see conftest)."""

import math
from typing import Any

import pytest

from headwise.inspect.report.report import HeadReport
from headwise.plain.numbers import rounded, weight
from headwise.plain.words import inner, visible
from headwise.render.report import words
from headwise.render.report.page import render_html
from tests.render.made_pages import long_page
from tests.render.report.test_panels import DEMO_PAGE, FULL_PAGE, HOSTILE_PAGE, cell
from tests.render.reports import HOSTILE, make_report, own

DEMO = make_report()
AMBIGUOUS = {"the"}  # stands twice in the demo text, so links show its position


def head_of(report: dict[str, Any], layer: int, head: int) -> dict[str, Any]:
    return words.head_table(report)[layer, head]


def option(token: int) -> str:
    return f'#text [data-position="{token}"]'


def drawn_links(page: Any) -> list[tuple[int, int, str]]:
    """(query, key, weight) of every line, thickest first."""
    read = """paths => paths.map(p => [p.dataset.query, p.dataset.key, p.dataset.weight,
        parseFloat(p.getAttribute("stroke-width"))])"""
    lines = page.locator("#curves path").evaluate_all(read)
    return [(int(q), int(k), shown) for q, k, shown, _ in sorted(lines, key=lambda line: -line[3])]


def colours(page: Any) -> list[str]:
    return page.locator("#grid [role=gridcell]").evaluate_all("cells => cells.map(c => c.style.background)")


def darkest_cell(page: Any, side: int) -> list[int]:
    """[row, column] of the map's cell that is farthest from the page's own colour."""
    return page.evaluate(
        """side => {
          const map = document.getElementById("map"), cell = map.width / side;
          const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          pen.canvas.width = pen.canvas.height = map.width;
          pen.drawImage(map, 0, 0);
          let best = [-1, 0, 0];
          for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) {
            const [r, g, b] = pen.getImageData((x + .5) * cell, (y + .5) * cell, 1, 1).data;
            if (765 - r - g - b > best[0]) best = [765 - r - g - b, y, x];
          }
          return best.slice(1);
        }""",
        side,
    )


def test_a_click_on_a_head_shows_its_card_and_map(show: Any) -> None:
    page = show(DEMO_PAGE)
    for layer, head in ((5, 11), (0, 3), (2, 7)):
        page.click(cell(layer, head))
        assert page.inner_text("#head-title") == f"Layer {layer}, head {head}"
        assert page.get_attribute(cell(layer, head), "aria-selected") == "true"
        assert page.locator('#grid [aria-selected="true"]').count() == 1
        report = head_of(DEMO, layer, head)
        label = next(label["name"] for label in DEMO["labels"] if label["key"] == report["label"])
        assert page.inner_text("#head-why .chip") == label
        for key, found in report["scores"].items():
            texts = page.locator(f'#scores [data-score="{key}"] td').all_inner_texts()
            assert texts[1:] == [rounded(found["value"]), rounded(found["null"])], key
        cells = report["pooled"]["map"]
        top = max((value, -i, -j) for i, row in enumerate(cells) for j, value in enumerate(row))
        assert darkest_cell(page, len(cells)) == [-top[1], -top[2]]


def test_the_rule_stands_beside_the_label(show: Any) -> None:
    page = show(DEMO_PAGE)
    found = next(h for _, h in sorted(words.head_table(DEMO).items()) if h["label"] == "previous")
    layer = next(layer["layer"] for layer in DEMO["layers"] if found in layer["heads"])
    page.click(cell(layer, found["head"]))
    value = rounded(found["scores"]["previous"]["value"])
    assert f"token just before (previous token: {value} ≥ 0.5 and ≥ 5 × 0.08)." in page.inner_text(
        "#head-why"
    )
    page.click(cell(5, 11))
    assert "No rule of the table below matched." in page.inner_text("#head-why")


def test_an_unlabelled_head_names_the_labels_out_of_reach(show: Any) -> None:
    report = own(DEMO)
    report["labels"][0]["reachable"] = report["labels"][2]["reachable"] = False
    page = show(render_html(report), "#layer=5&head=11")
    expected = "matched; on this text previous token and separator cannot be reached."
    assert page.inner_text("#head-why").endswith(expected)


def test_the_most_telling_heads_are_not_cut_without_a_scrollbar(show: Any) -> None:
    page = show(DEMO_PAGE)
    for y in (0, 90, 400, 10_000):
        page.evaluate("y => scrollTo(0, y)", y)
        page.wait_for_function("y => scrollY === Math.min(y, root.scrollHeight - innerHeight)", arg=y)
        page.wait_for_timeout(50)
        bottom, cut, bar, beyond = page.evaluate(
            """() => {
              const list = document.getElementById("telling"), column = list.parentElement;
              return [list.getBoundingClientRect().bottom, list.scrollHeight > list.clientHeight,
                list.offsetWidth - list.clientWidth, column.scrollHeight - column.clientHeight];
            }"""
        )
        assert bottom <= 900 and cut and bar >= 6 and beyond <= 0, y
    page.evaluate("scrollTo(0, 0)")
    page.locator("#telling button").last.click()
    assert page.locator('#telling [aria-current="true"]').count() == 1


def test_the_page_works_in_the_frame_of_a_notebook(show: Any) -> None:
    frame = HeadReport.from_dict(DEMO)._repr_html_()
    page = show(f"<!doctype html><title>notebook</title>{frame}")
    inside = page.frame_locator("iframe")
    inside.locator(cell(5, 11)).click()
    inside.get_by_role("option", name="it", exact=True).click()
    assert inside.locator("#links li").first.inner_text() == "“it” → “cat” .41"
    inside.locator("#help").click()
    inside.get_by_role("button", name="Close").click()
    assert inside.locator("#keys-dialog").is_hidden()


def test_bars_stand_against_uniform_attention(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11")
    found = head_of(DEMO, 5, 11)["scores"]["entropy"]
    row = page.locator('#scores [data-score="entropy"]')
    widths = row.evaluate(
        "row => [row.querySelector('.fill').style.width, row.querySelector('.tick').style.left]"
    )
    share = found["value"] / math.log(13)
    assert float(widths[0].rstrip("%")) == pytest.approx(100 * share, abs=0.1)
    assert float(widths[1].rstrip("%")) == pytest.approx(100, abs=0.1)


def test_the_keyboard_opens_a_head(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=0&head=0")
    page.focus(cell(0, 0))
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.inner_text("#head-title") == "Layer 0, head 0", "moving is not yet choosing"
    assert page.locator("#grid :focus").get_attribute("data-layer") == "1"
    assert page.locator('#grid [tabindex="0"]').get_attribute("data-layer") == "1", "Tab comes back to it"
    page.keyboard.press("Enter")
    assert page.inner_text("#head-title") == "Layer 1, head 1"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert page.inner_text("#head-title") == "Layer 1, head 11"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.inner_text("#head-title") == "Layer 1, head 0"
    assert page.locator('#grid [tabindex="0"]').count() == 1


def test_tab_reaches_every_part_in_reading_order(show: Any) -> None:
    page = show(render_html(make_report(layers=2, heads=2, telling=[])), "#layer=1&head=1&token=8")
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        where = "document.activeElement.id || document.activeElement.closest('[id]')?.id"
        seen.append(page.evaluate(where))
    parts = [part for i, part in enumerate(seen) if part not in seen[:i]]
    assert parts[1:8] == ["theme", "help", "score", "grid", "text", "clear", "map"], seen
    assert "scores" in parts


def test_the_word_it_draws_a_line_to_cat_with_its_weight(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11")
    page.get_by_role("option", name="it", exact=True).click()
    lines = drawn_links(page)
    assert lines[0] == (8, 2, ".41")
    row = zip(*(head_of(DEMO, 5, 11)["rows"][part][8] for part in ("index", "weight")), strict=True)
    assert {(key, shown) for _, key, shown in lines} == {(key, weight(value)) for key, value in row}
    assert page.locator("#links li").first.inner_text() == "“it” → “cat” .41"
    assert page.inner_text('#keys [data-position="2"] .given') == ".41"
    assert page.inner_text("#queries .chosen bdi") == "it"
    assert page.get_attribute(option(8), "aria-selected") == "true"
    assert "color-mix" in page.get_attribute(option(2), "style")
    shared = 1 - sum(head_of(DEMO, 5, 11)["rows"]["weight"][8])
    assert page.inner_text("#links-rest") == f"The other 7 tokens share {weight(shared)}."


def test_a_line_joins_the_rows_of_its_words(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11&token=8")
    gap = page.evaluate(
        """() => {
          const path = document.querySelector('#curves path[data-query="8"][data-key="2"]');
          const line = path.getBoundingClientRect();
          const middle = (id, at) => {
            const box = document.querySelector(`#${id} [data-position="${at}"]`).getBoundingClientRect();
            return box.top + box.height / 2;
          };
          return [line.bottom - middle("queries", 8), line.top - middle("keys", 2)];
        }"""
    )
    assert max(map(abs, gap)) < 6, gap


def test_without_a_token_the_strongest_links_are_drawn_and_lead_to_their_token(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11")
    links = head_of(DEMO, 5, 11)["links"]
    assert sorted(drawn_links(page)) == sorted((q, k, weight(w)) for q, k, w in links)
    for item, (query, key, value) in zip(page.locator("#links li").all(), links, strict=True):
        names = [word + (str(at) if word in AMBIGUOUS else "") for at, word in enumerate(DEMO["tokens"])]
        said = item.inner_text().replace("”", "").replace("“", "")
        assert said == f"{names[query]} → {names[key]} {weight(value)}"
    page.locator("#links li button").first.click()
    assert page.evaluate("location.hash") == f"#layer=5&head=11&token={links[0][0]}"
    page.click("#clear")
    assert page.evaluate("location.hash") == "#layer=5&head=11"


def test_arrow_keys_move_along_the_tokens(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11")
    page.focus(option(0))
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#queries .chosen bdi") == "[CLS]", "the first press takes the focused token"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#queries .chosen bdi") == "the"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.position") == "12"
    page.keyboard.press("Home")
    assert page.locator("#text [aria-selected=true]").inner_text() == "[CLS]"
    page.keyboard.press("Escape")
    assert page.locator("#text [aria-selected=true]").count() == 0
    page.click('#queries [data-position="8"]')
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#queries .chosen bdi") == "because"


def test_the_selector_recolours_the_grid_and_says_what_the_score_means(show: Any) -> None:
    page = show(DEMO_PAGE)
    before = colours(page)
    assert len(set(before)) > 10
    for score in DEMO["scores"]:
        page.select_option("#score", score["key"])
        values = [head["scores"][score["key"]]["value"] for head in words.head_table(DEMO).values()]
        now = colours(page)
        assert now[values.index(max(values))] != now[values.index(min(values))]
        assert page.inner_text("#score-meaning").startswith(score["meaning"])
        said = page.inner_text("#score-meaning")
        assert "Range 0 to" in said and f"Uniform attention would give {score['null']}." in said
        null = rounded(head_of(DEMO, 0, 0)["scores"][score["key"]]["null"])
        assert f"uniform attention: {null}" in page.inner_text("#grid-legend")
        shown = rounded(head_of(DEMO, 3, 4)["scores"][score["key"]]["value"])
        assert f"{inner(score['name'])} {shown}" in page.get_attribute(cell(3, 4), "aria-label")
    assert colours(page) != before
    page.click('#scores [data-score="special"] button')
    assert page.input_value("#score") == "special"
    assert page.evaluate("location.hash").endswith("&score=special")


def test_a_missing_value_is_shown_as_missing(show: Any) -> None:
    report = own(make_report(layers=2, heads=2))
    missing = {"value": None, "null": None, "share": 0.0, "rows": 0, "all_rows": None}
    report["layers"][0]["heads"][1]["scores"]["entropy"] = missing
    page = show(render_html(report), "#layer=0&head=1&score=entropy")
    assert "no-value" in page.get_attribute(cell(0, 1), "class")
    assert page.locator('#scores [data-score="entropy"] td').all_inner_texts()[1:] == ["–", "–"]
    assert "no possible match" in page.inner_text('#scores [data-score="entropy"] th')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(show: Any, scheme: str) -> None:
    page = show(DEMO_PAGE, color_scheme=scheme)
    luminance = """selector => {
      const colour = getComputedStyle(document.querySelector(selector)).backgroundColor;
      const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }"""
    first, ramp = page.evaluate(luminance, "html"), colours(page)
    assert (first > 200) == (scheme == "light") and (first < 60) == (scheme == "dark")
    page.click("#theme")
    second = page.evaluate(luminance, "html")
    assert (second < 60) == (scheme == "light")
    assert colours(page) != ramp
    page.click("#theme")
    assert colours(page) == ramp


@pytest.mark.parametrize(
    ("html", "place"),
    [(DEMO_PAGE, "#layer=5&head=11&token=8"), (FULL_PAGE, "#layer=0&head=0")],
    ids=["demo", "panels"],
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(show: Any, scheme: str, html: str, place: str) -> None:
    page = show(html, place, color_scheme=scheme, reduced_motion="reduce")
    poor = page.evaluate(
        """() => {
          const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          const paint = (colours) => {
            pen.clearRect(0, 0, 1, 1);
            for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
            return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
          };
          const light = (parts) => {
            const [r, g, b] = parts.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
            return .2126 * r + .7152 * g + .0722 * b;
          };
          const poor = [];
          const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          for (let node; (node = walk.nextNode());) {
            const box = node.parentElement;
            if (!node.textContent.trim() || !box.checkVisibility()) continue;
            if (box.closest("script, noscript, .hidden, .skip")) continue;
            const behind = [];
            for (let up = box; up; up = up.parentElement) {
              behind.unshift(getComputedStyle(up).backgroundColor);
            }
            const back = paint(behind), front = paint([...behind, getComputedStyle(box).color]);
            const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
            const ratio = (a + .05) / (b + .05);
            const least = box.closest("#grid") ? 3.8 : 4.5;  // a letter in the grid only repeats the legend
            if (ratio < least) poor.push([node.textContent.trim().slice(0, 30), ratio]);
          }
          return poor;
        }"""
    )
    assert poor == []


def test_hostile_tokens_are_shown_as_text(show: Any) -> None:
    report = own(make_report(HOSTILE, layers=2, heads=2, notes=["<b>note</b>"]))
    report["model"]["name"] = "<img src=x onerror=alert(1)>"
    page = show(render_html(report))
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    assert page.title() == "<img src=x onerror=alert(1)> – attention heads"
    assert page.inner_text("#model-name") == report["model"]["name"]
    assert page.inner_text("#notes li") == "<b>note</b>"
    texts = page.locator("#text [role=option] bdi").evaluate_all("all => all.map(one => one.textContent)")
    assert texts == [visible(token) for token in HOSTILE]
    page.focus(option(0))
    for token in HOSTILE:
        page.keyboard.press("ArrowRight")
        assert page.locator("#queries .chosen bdi").evaluate("one => one.textContent") == visible(token)
    assert page.locator("body img, body b script, #text b, #lines b, #links b").count() == 0
    assert dialogs == []


def test_long_tokens_do_not_widen_the_page(show: Any) -> None:
    for html in (HOSTILE_PAGE, DEMO_PAGE, FULL_PAGE):
        page = show(html, "#layer=0&head=0&token=3", reduced_motion="reduce")
        for width in (1280, 700, 390, 320):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)


def test_no_part_lies_on_another(show: Any) -> None:
    page = show(render_html(make_report(layers=12, heads=12)), "#layer=5&head=11", height=700)
    for share in (0.0, 0.5, 0.8, 1.0):
        page.evaluate("share => scrollTo(0, share * document.documentElement.scrollHeight)", share)
        boxes = [page.locator(part).bounding_box() for part in (".top", ".overview", ".head-panel", ".about")]
        for i, one in enumerate(boxes):
            for two in boxes[i + 1 :]:
                across = min(one["x"] + one["width"], two["x"] + two["width"]) - max(one["x"], two["x"])
                down = min(one["y"] + one["height"], two["y"] + two["height"]) - max(one["y"], two["y"])
                assert min(across, down) <= 1, (share, one, two)


def test_one_token_and_one_head(show: Any) -> None:
    page = show(render_html(make_report(["hi"], layers=1, heads=1)))
    assert page.inner_text("#links-title") == "No link between two different words"
    page.click(option(0))
    assert page.locator("#links li").all_inner_texts() == ["“hi” → “hi” 1"]
    assert page.inner_text("#links-rest") == ""


def test_a_view_can_be_shared_by_its_address(show: Any) -> None:
    html = DEMO_PAGE
    page = show(html)
    page.click(cell(5, 11))
    page.click(option(8))
    page.select_option("#score", "distance")
    address = page.evaluate("location.hash")
    assert address == "#layer=5&head=11&token=8&score=distance"
    again = show(html, address)
    assert again.inner_text("#head-title") == "Layer 5, head 11"
    assert drawn_links(again) == drawn_links(page)
    assert again.input_value("#score") == "distance"
    again.evaluate("location.hash = '#layer=1&head=2'")
    again.wait_for_function("document.getElementById('head-title').textContent === 'Layer 1, head 2'")
    assert again.locator("#text [aria-selected=true]").count() == 0


@pytest.mark.parametrize(
    "fragment",
    ["#layer=99&head=0", "#token=-1", "#token=13", "#token=1e9", "#score=x", "#%zz", "#head-panel"],
)
def test_a_broken_address_opens_the_page_as_new(show: Any, fragment: str) -> None:
    page = show(DEMO_PAGE, fragment)
    best = DEMO["telling"][0]
    assert page.inner_text("#head-title") == f"Layer {best['layer']}, head {best['head']}"
    assert page.locator("#curves path").count() > 0


def test_the_map_can_be_read_by_mouse_and_keys(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11")
    side = page.locator("#map").bounding_box()["width"] / 13
    page.hover("#map", position={"x": 2.5 * side, "y": 8.5 * side})
    assert page.inner_text("#map-readout") == "query 8 “it” → key 2 “cat”: .41"
    page.mouse.move(0, 0)
    assert page.inner_text("#map-readout") == ""
    page.keyboard.press("Tab")  # so that the focus below counts as one by keyboard
    page.focus("#map")
    for key in ("ArrowDown",) * 8 + ("ArrowRight",) * 2:
        page.keyboard.press(key)
    assert page.inner_text("#map-readout") == "query 8 “it” → key 2 “cat”: .41"
    page.keyboard.press("Enter")
    assert drawn_links(page)[0] == (8, 2, ".41")


def test_the_keys_are_shown_on_asking(show: Any) -> None:
    page = show(DEMO_PAGE)
    dialog = page.locator("#keys-dialog")
    assert not dialog.is_visible()
    page.keyboard.press("?")
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.click("#help")
    page.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


def test_telling_heads_are_listed_in_words_and_open(show: Any) -> None:
    page = show(DEMO_PAGE)
    items = page.locator("#telling button")
    assert items.count() == len(DEMO["telling"])
    for item, entry in zip(items.all(), DEMO["telling"], strict=True):
        item.click()
        assert page.inner_text("#head-title") == f"Layer {entry['layer']}, head {entry['head']}"
        score = next(score["name"] for score in DEMO["scores"] if score["key"] == entry["score"])
        said = f"{inner(score)} {rounded(entry['value'])} (uniform {rounded(entry['null'])})"
        assert said in item.inner_text()


def test_the_page_says_how_to_read_it(show: Any) -> None:
    page = show(DEMO_PAGE)
    text = page.inner_text("body")
    for sentence in (
        "counted from 0",
        "not proof of what the model used",
        "Jain and Wallace 2019",
        "max |Δ| = 0",
        "uniform attention",
    ):
        assert sentence in text, sentence
    for summary in page.locator("summary").all():
        summary.click()
    table = page.inner_text("#score-table")
    for score in DEMO["scores"]:
        assert score["meaning"] in table and score["null"] in table
    assert "previous token ≥ 0.5 and ≥ 5 × uniform" in page.inner_text("#label-table")


@pytest.mark.parametrize(("tokens", "layers", "heads"), [(512, 6, 12), (2000, 30, 9)])
def test_every_head_of_a_long_report_opens(show: Any, tokens: int, layers: int, heads: int) -> None:
    report = make_report(tokens, layers, heads)
    page = show(long_page(tokens, layers, heads))
    opened = page.evaluate(
        """() => {
          const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          return [...document.querySelectorAll("#grid [role=gridcell]")].map(cell => {
            cell.click();
            pen.drawImage(document.getElementById("map"), 0, 0, 50, 50);
            const pixels = new Uint32Array(pen.getImageData(0, 0, 50, 50).data.buffer);
            return [document.getElementById("head-title").textContent, new Set(pixels).size > 5,
              document.querySelectorAll("#curves path").length,
              document.querySelectorAll("#scores tr").length];
          });
        }"""
    )
    expected = [
        [f"Layer {layer}, head {head}", True, len(found["links"]), len(report["scores"])]
        for (layer, head), found in words.head_table(report).items()
    ]
    assert opened == expected


def test_words_of_a_long_text_stay_legible(show: Any) -> None:
    report = make_report(512, 6, 12)
    page = show(long_page(512, 6, 12), "#layer=0&head=0&token=256")
    assert page.locator("#text [role=option]").count() == 512
    words_shown = page.locator("#queries .word, #keys .word")
    assert words_shown.count() < 60
    sizes = words_shown.evaluate_all(
        """all => all.map(one =>
            [one.getBoundingClientRect().height, parseFloat(getComputedStyle(one).fontSize)])"""
    )
    assert all(height >= 20 and size >= 14 for height, size in sizes)
    row = head_of(report, 0, 0)["rows"]
    assert {key for _, key, _ in drawn_links(page)} == set(row["index"][256])
    visible = page.evaluate(
        """() => {
          const box = document.getElementById("text").getBoundingClientRect();
          const one = document.querySelector("#text [aria-selected=true]").getBoundingClientRect();
          return one.top >= box.top && one.bottom <= box.bottom;
        }"""
    )
    assert visible, "the chosen word is scrolled into view"


def test_a_text_of_thousands_of_words_is_paged(show: Any) -> None:
    page = show(render_html(make_report(2000, 2, 2)), "#layer=0&head=0")
    assert page.inner_text("#page-words") == "tokens 0 to 799 of 2,000"
    page.click("#later")
    page.click("#later")
    assert page.inner_text("#page-words") == "tokens 1,600 to 1,999 of 2,000"
    assert page.locator("#later").is_disabled()
    page.click(option(1999))
    assert "Token 1999" in page.inner_text("#lines-hint")
    page.keyboard.press("Home")
    assert page.inner_text("#page-words") == "tokens 0 to 799 of 2,000"
    assert page.evaluate("document.activeElement.dataset.position") == "0"


def test_what_was_left_out_is_said_on_the_page(show: Any) -> None:
    page = show(long_page(300, 6, 12, 600_000), "#layer=0&head=0")
    assert "each head shows the weights of its" in page.inner_text("#left-out")
    missing = page.locator("#text .without-row")
    assert 0 < missing.count() < 300
    missing.first.click()
    assert "were left out of this file" in page.inner_text("#lines-hint")
    assert page.locator("#curves path").count() == 0
    page.locator("#text [role=option]:not(.without-row)").first.click()
    assert page.locator("#curves path").count() > 0


def test_a_complete_page_says_nothing_of_the_kind(show: Any) -> None:
    page = show(DEMO_PAGE)
    assert page.locator("#left-out").is_hidden()
    assert page.locator("#text .without-row").count() == 0


def test_on_paper_it_is_light_and_without_controls(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11&token=8", color_scheme="dark")
    before = colours(page)
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function(
        "old => document.querySelector('#grid [role=gridcell]').style.background !== old", arg=before[0]
    )
    assert page.locator(".tools").is_hidden() and page.locator("#clear").is_hidden()
    assert page.locator("#curves path").count() == 6


def test_names_for_those_who_listen(show: Any) -> None:
    page = show(DEMO_PAGE, "#layer=5&head=11&token=8")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll(
            "button, select, canvas, [role=grid], [role=gridcell], [role=listbox], section")]
          .filter(node => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length
            || node.getAttribute("aria-labelledby")))
          .map(node => node.outerHTML)"""
    )
    assert nameless == []
    assert page.get_by_role("gridcell").count() == 72
    assert page.get_by_role("combobox", name="Colour by").count() == 1
    assert page.get_by_role("listbox").get_by_role("option", selected=True).inner_text() == "it"
    label = page.get_by_role("gridcell", selected=True).get_attribute("aria-label")
    assert label.startswith("Layer 5, head 11: largest weight 0.") and label.endswith("unlabelled")


def test_the_seal_holds(browser: Any, tmp_path: Any) -> None:
    """The policy stops what the other tests ask to be absent: a request, and a script from elsewhere."""
    file = tmp_path / "report.html"
    file.write_text(DEMO_PAGE, encoding="ascii")
    page = browser.new_page()
    logged: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    page.goto(file.as_uri())
    assert (
        page.evaluate("fetch('https://example.invalid/').then(() => 'sent', error => error.name)")
        == "TypeError"
    )
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.title = 'ran'";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<img src='https://example.invalid/x.png'>");
        }"""
    )
    page.wait_for_timeout(100)
    assert page.title() != "ran"
    assert sum("Content Security Policy" in text for text in logged) >= 3, logged
    page.close()
