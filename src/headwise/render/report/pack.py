"""A report as the compact data of one page, within a budget of bytes.

Maps and rows are stored as base64 of little-endian integers: a weight w as round(w · ONE) in 16 bits, a
token's position in 16 or 32 bits. A text of the panels, which many heads have in common, is stored once.
Where a report is too long for the budget, the rows of the weaker query tokens go first, then maps are merged
two cells by two, then the panels of single heads go; scores, labels, links and words always stay.
"""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headwise.errors import HeadwiseError
from headwise.plain.types import Array, Floats
from headwise.plain.words import counted, inner, sentence, series, visible
from headwise.render.report import words
from headwise.render.report.parts import IN_WORDS, Part, Table, head_parts, parts
from headwise.render.report.words import Head, Label, Layer, Report, Score

ONE, MISSING = 65534, 65535  # 16-bit codes of the weight 1 and of "no weight"
ENOUGH_ROWS = 48  # rows of each head below which coarser maps are preferred to still fewer rows
COARSEST = 12  # a map is not merged below this many cells a side

Data: TypeAlias = dict[str, Any]  # of the page, or of a part of it
Page: TypeAlias = Callable[[Data], str]


def fit(report: Report, budget: int, page: Page) -> str:
    """The page with all of the report that fits into `budget` bytes.

    `page` turns the data of a page into the page itself, ASCII text. Raises `HeadwiseError`, which names the
    smallest budget that would do, when not even one row of each head fits.
    """
    n, heads, held = report["text"]["n_tokens"], len(words.head_table(report)), _rows_held(report)
    row = heads * _row_bytes(report)
    factors = _map_factors(report)
    every, few = _panels(report, True), _panels(report, False)
    for factor, panels in [*((factor, every) for factor in factors), (factors[-1], few)]:
        smallest = page(_data(report, budget, 1, factor, panels))
        spare = budget - len(smallest)
        rows: int | None = min(1 + spare // row, held)
        if rows == held:
            rows = None
        if spare < 0 or (rows is not None and rows < ENOUGH_ROWS and panels is every):
            continue
        while rows is None or rows > 1:
            fitted = page(_data(report, budget, rows, factor, panels))
            if len(fitted) <= budget:
                return fitted
            rows = (rows or held) - max((len(fitted) - budget) // row, 1)
        return smallest
    least = math.ceil(len(smallest) / 1000 + 0.1) * 1000  # rounded up: the page names its own budget
    expected = f"at least {least:,} bytes for {counted(heads, 'head')} on {counted(n, 'token')}"
    raise HeadwiseError("budget", expected, f"{budget:,}", "raise the budget or inspect a shorter text")


def _map_factors(report: Report) -> list[int]:
    """1, 2, 4, …: by how much maps can be merged."""
    side = max((len(head["pooled"]["map"]) for head in words.head_table(report).values()), default=1)
    factors = [1]
    while side / (factors[-1] * 2) >= COARSEST:
        factors.append(factors[-1] * 2)
    return factors


def _row_bytes(report: Report) -> int:
    """Bytes that one more row of one head takes in the page, base64 included."""
    keys = _keys_per_row(report)
    return math.ceil((_index_type(report).itemsize * (1 + keys) + 2 * keys) * 4 / 3)


def _keys_per_row(report: Report) -> int:
    heads = words.head_table(report).values()
    return max((len(row) for head in heads for row in head["rows"]["index"][:1]), default=0)


def _rows_held(report: Report) -> int:
    """Rows of the head that has most of them; a report on a long text holds those of some passages."""
    return max(max(len(head["rows"]["index"]) for head in words.head_table(report).values()), 1)


def _index_type(report: Report) -> np.dtype[Any]:
    return np.dtype("<u2" if sum(_starts(report)[1]) <= MISSING else "<u4")


def _starts(report: Report) -> tuple[dict[str, int], list[int]]:
    """Where each sequence starts when the page lays them out one after the other, and their lengths."""
    lengths = [len(sequence["tokens"]) for sequence in report["sequences"]]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    names = [sequence["name"] for sequence in report["sequences"]]
    return dict(zip(names, starts, strict=True)), lengths


def _data(report: Report, budget: int, rows: int | None, factor: int, panels: Data) -> Data:
    """The data of the page: `rows` rows of every head (None: all), maps merged `factor` by `factor`, with
    these panels."""
    n, starts = report["text"]["n_tokens"], _starts(report)[0]
    texts = words.texts(report)
    tokens = [token for shown, _ in texts.values() for token in shown]
    special = sorted(starts[name] + at for name, (_, where) in texts.items() for at in where)
    labels = {label["key"]: label for label in report["labels"]}
    names = {score["key"]: score["name"] for score in report["scores"]}
    letters = words.letters(report["labels"])
    every = [head for layer in report["layers"] for head in layer["heads"]]
    unknown = {"name": "unlabelled", "score": None}
    return {
        "headwise": report["headwise"],
        "subject": words.subject(report),
        "selfTest": words.self_test(report.get("check")),
        "caveat": words.CAVEAT,
        "noRule": words.no_rule(report["labels"]),
        "model": dict(report["model"]),
        "tokens": tokens,
        "special": special,
        "scores": [_score(score, max(_starts(report)[1]), every) for score in report["scores"]],
        "labels": [_label(label, names, letters) for label in report["labels"]],
        "layers": {str(layer["layer"]): layer["name"] for layer in report["layers"]},
        "telling": [{key: entry[key] for key in ("layer", "head", "score")} for entry in report["telling"]],
        "notes": [visible(note) for note in [*report["notes"], *_order(report)]],
        "leftOut": _left_out(report, budget, rows, factor, panels),
        "panels": panels["together"],
        "phrases": panels["phrases"],
        "encoding": {"one": ONE, "missing": MISSING, "indexBytes": _index_type(report).itemsize},
        "values": {key: _column(every, key) for key in names},
        "heads": [
            {
                "layer": layer["layer"],
                "head": head["head"],
                "label": head["label"],
                "why": words.rule(labels.get(head["label"], unknown), head, names),
                "panels": panels["heads"][layer["layer"], head["head"]],
                **_places(layer, head, labels.get(head["label"], unknown), starts, texts),
                **_map(head["pooled"], n, factor, starts[layer["queries"]] == starts[layer["keys"]] == 0),
                **_rows(
                    head["rows"],
                    texts[layer["queries"]][1],
                    texts[layer["keys"]][1],
                    (starts[layer["queries"]], starts[layer["keys"]]),
                    rows,
                    _index_type(report),
                ),
            }
            for layer in report["layers"]
            for head in layer["heads"]
        ],
    }


def _panels(report: Report, of_heads: bool) -> Data:
    """The panels of all heads together and of each head, and the phrases that they are made of.

    A panel is its title, measure, sentences, items, and tables: names of columns, those that hold words,
    rows; the number of a phrase stands for each text.
    """
    phrases: dict[str, int] = {}

    def numbered(text: Any) -> Any:
        if isinstance(text, str):
            return phrases.setdefault(text, len(phrases))
        return [numbered(one) for one in text]

    def panels(found: Sequence[Part]) -> list[Any]:
        return [
            numbered([part.title, part.measure, part.sentences, part.items, list(map(_table, part.tables))])
            for part in found
        ]

    together = panels(parts(report))
    heads = {
        (layer["layer"], head["head"]): panels(head_parts(report, layer, head) if of_heads else [])
        for layer in report["layers"]
        for head in layer["heads"]
    }
    return {"together": together, "heads": heads, "phrases": list(phrases), "left out": not of_heads}


def _table(table: Table) -> list[Sequence[Any]]:
    return [table.columns, [name for name in table.columns if name in IN_WORDS], table.rows]


def _order(report: Report) -> list[str]:
    """How the page lays out several sequences."""
    names = [sequence["name"] for sequence in report["sequences"]]
    if len(names) < 2:
        return []
    return [
        f"The words of {series(names)} stand one after the other here, counted on; heads that look "
        "from one to another have no map on this page."
    ]


def _places(
    layer: Layer,
    head: Head,
    label: Label,
    starts: Mapping[str, int],
    texts: Mapping[str, tuple[list[str], set[int]]],
) -> Data:
    """Links in places of the page, and how many keys a query may see."""
    queries, keys = starts[layer["queries"]], starts[layer["keys"]]
    best = words.strongest(head, label, texts[layer["queries"]][1])
    return {
        "strongest": None if best is None else [best[0] + queries, best[1] + keys, best[2]],
        "links": [[query + queries, key + keys, _short(value)] for query, key, value in head["links"]],
        "causal": layer["causal"],
        "firstQuery": queries,
        "sees": len(texts[layer["keys"]][0]),
    }


def _score(score: Score, n: int, heads: Sequence[Head]) -> Data:
    top, span = words.span(score, n)
    if score["range"] is not None and score["range"][1] is None:  # open above: bars end at the largest head
        found = _column(heads, score["key"])
        top = max(
            (v for part in ("value", "null") for v in _listed(found[part]) if v is not None), default=1.0
        )
    known = {**score, "meaning": sentence(score["meaning"]), "null": score["null"].removesuffix(".")}
    group = words.GROUPS.get(score["group"], "")
    return {**known, "inner": inner(score["name"]), "top": top, "range": span, "group": group}


def _label(label: Label, names: Mapping[str, str], letters: Mapping[str, str]) -> Data:
    known = {**label, "meaning": sentence(label["meaning"]), "letter": letters[label["key"]]}
    return {**known, "rule": words.general_rule(label, names)}


def _short(value: float | None) -> float | None:
    """Five digits are more than any picture shows; what is not finite is missing."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _column(heads: Sequence[Head], key: str) -> Data:
    """One score of all heads: lists in the order of the heads, a single number where all agree."""
    column: Data = {}
    for part in ("value", "null", "share"):
        numbers = [_short(head["scores"].get(key, {}).get(part)) for head in heads]
        same = part != "value" and len(set(numbers)) <= 1
        column[part] = numbers[0] if same and numbers else numbers
    return column


def _listed(column: Any) -> list[float | None]:
    return column if isinstance(column, list) else [column]


def _map(pooled: Mapping[str, Any], n: int, factor: int, drawn: bool) -> Data:
    """The map of a head, merged `factor` by `factor`: means over query cells, sums over key cells.

    Only the maps of the main text are `drawn`: the page has one axis of tokens.
    """
    block = pooled["block"]
    if not drawn or not pooled["map"] or len(pooled["map"]) != len(pooled["map"][0]):
        return {"block": block, "side": 0, "map": ""}
    cells = np.asarray(pooled["map"], dtype=np.float64).reshape(len(pooled["map"]), -1)
    starts = np.arange(0, len(cells), factor)
    queries = np.minimum(block, n - block * np.arange(len(cells)))[:, None] * np.isfinite(cells)
    mass = np.add.reduceat(np.where(np.isfinite(cells), cells, 0.0) * queries, starts, axis=0)
    seen = np.add.reduceat(queries, starts, axis=0)
    with np.errstate(invalid="ignore"):
        merged = mass / seen
    merged = np.add.reduceat(merged, np.arange(0, cells.shape[1], factor), axis=1)
    return {"block": block * factor, "side": len(merged), "map": _weights(merged)}


def _rows(
    part: Mapping[str, Any],
    special_queries: set[int],
    special_keys: set[int],
    starts: tuple[int, int],
    rows: int | None,
    index: np.dtype[Any],
) -> Data:
    """The strongest keys of each query: of all that the report holds, or of the `rows` ones with the
    strongest own links.

    A row is as strong as its largest weight on a token that is neither special nor the query itself. `starts`
    are the places of the first query and the first key on the page.
    """
    many = len(part["index"])
    keys = np.asarray(part["index"], dtype=np.int64).reshape(many, -1 if many else 0)
    weights = np.asarray(part["weight"], dtype=np.float64).reshape(keys.shape)
    every = part["queries"] is None and starts == (0, 0)
    queries = np.arange(many) if part["queries"] is None else np.asarray(part["queries"], dtype=np.int64)
    data: Data = {"perRow": keys.shape[1]}
    if rows is not None and rows < many:
        every = False
        itself = queries[:, None] if starts[0] == starts[1] else -1
        aside = np.isin(keys, list(special_keys)) | (keys == itself) | (keys < 0)
        strength = np.where(aside, 0.0, np.nan_to_num(weights)).max(axis=1, initial=0.0)
        strength[np.isin(queries, list(special_queries))] = -1.0
        kept = np.sort(np.argsort(-strength, kind="stable")[:rows])
        keys, weights, queries = keys[kept], weights[kept], queries[kept]
    if not every or not many:
        data["queries"] = _base64((queries + starts[0]).astype(index))
    missing = np.iinfo(index).max
    data["keys"] = _base64(np.where(keys < 0, missing, keys + starts[1]).astype(index))
    data["weights"] = _weights(np.where(keys < 0, np.nan, weights))
    return data


def _weights(values: Floats) -> str:
    codes = np.rint(np.clip(values, 0.0, 1.0) * ONE)
    return _base64(np.where(np.isfinite(codes), codes, MISSING).astype("<u2"))


def _base64(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _left_out(report: Report, budget: int, rows: int | None, factor: int, panels: Data) -> list[str]:
    """What the page lacks, in plain words."""
    n, sentences = report["text"]["n_tokens"], []
    size = f"{budget / 1e6:g} MB"
    if rows is not None:
        queries = counted(rows, "query token")
        sentences.append(
            f"To keep this file under {size}, each head shows the weights of its {queries} with the "
            f"strongest links, out of {n:,}. Scores, labels and maps still count every token."
        )
    if factor > 1:
        sentences.append(
            f"The maps are {factor} times coarser than the report\u2019s, also to stay under {size}."
        )
    heads = [(layer, head) for layer in report["layers"] for head in layer["heads"] if panels["left out"]]
    lost = {f"\u201c{part.title}\u201d": 0 for at in heads for part in head_parts(report, *at)}
    if lost:
        sentences.append(f"Left out of each head, also to stay under {size}: {series(list(lost))}.")
    return sentences
