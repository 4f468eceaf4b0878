"""What a report must look like, and how one of an earlier version becomes one of today.

A report may come from anywhere (``headwise show`` draws a file), so every part that a picture reads is
checked once, here; the rest of the package may then take it for granted. Parts that are not known are left
alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwise.errors import HeadwiseError

SCHEMA = "headwise.report"
VERSION = 2
ADDED = ("needle", "sinks")  # parts that a report of this version may lack: earlier ones did not have them
Report = Mapping[str, Any]
Check = Callable[[Any, str], None]

CUT = "the file may be cut or edited"
MOST_CELLS = 2**22  # of one map or list of rows: more than any report holds, less than would hurt


def read(report: Any) -> dict[str, Any]:
    """The report as one of this version; what was given is not touched.

    Raises:
        HeadwiseError: no report, a newer version, or a part that is missing or of another kind; the message
            names the part.
    """
    found = report.get("schema") if isinstance(report, Mapping) else type(report).__name__
    if not isinstance(report, Mapping) or found != SCHEMA:
        hint = "pass HeadReport.to_dict(), or the file that --json wrote"
        raise HeadwiseError("report", f"a dict with schema {SCHEMA!r}", _short(found), hint)
    version = report.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        hint = "pip install --upgrade headwise"
        raise HeadwiseError("report", f"version 1 to {VERSION}", f"version {_short(version)}", hint)
    current = dict.fromkeys(ADDED) | (dict(report) if version == VERSION else _from_version_1(report))
    REPORT(current, "")
    _check_places(current)
    return current


# ---- version 1: one text, self-attention only, and fewer words on each score


def _from_version_1(report: Report) -> dict[str, Any]:
    _of_kind(Mapping, "an object")(report, "")
    _fields(layers=LIST, tokens=LIST, scores=LIST, labels=LIST)(report, "")
    special = report.get("special", [])
    more: dict[str, Any] = {
        "version": VERSION,
        "special": special,
        "notes": report.get("notes", []),
        "check": report.get("check"),
        "sequences": [{"name": "text", "tokens": report["tokens"], "special": special}],
        "scores": [
            {"over": "", "source": "", "group": "", "range": None, **_mapping(s)} for s in report["scores"]
        ],
        "labels": [{"rows": None, "reachable": True, **_mapping(label)} for label in report["labels"]],
        "layers": [
            {
                "kind": "self",
                "queries": "text",
                "keys": "text",
                "causal": bool(_mapping(report.get("model")).get("causal")),
                **_mapping(layer),
                "heads": [_head_of_version_1(head) for head in _list(_mapping(layer).get("heads"))],
            }
            for layer in report["layers"]
        ],
    }
    empty = dict.fromkeys(("pairs", "probe", "redundancy", "rollout"))
    return {**empty, **report, **more}


def _head_of_version_1(head: Any) -> dict[str, Any]:
    known = dict(_mapping(head))
    lines = _mapping(known.get("scores"))
    scores = {
        key: {"share": None, "rows": None, "all_rows": None, **_mapping(line)} for key, line in lines.items()
    }
    rows = {"queries": None, **_mapping(known.get("rows"))}
    return {"evidence": None, "offsets": None, "received": None, **known, "scores": scores, "rows": rows}


def _mapping(part: Any) -> Mapping[str, Any]:
    """The part, or nothing where it is no object: the check that follows names it."""
    return part if isinstance(part, Mapping) else {}


def _list(part: Any) -> Sequence[Any]:
    return part if isinstance(part, list | tuple) else []


# ---- checks: each takes a part and its place, and raises


def _of_kind(kind: Any, words: str) -> Check:
    def check(part: Any, place: str) -> None:
        if not isinstance(part, kind) or (isinstance(part, bool) and kind is not bool):
            raise _wrong(place, words, part)

    return check


def _wrong(place: str, words: str, part: Any) -> HeadwiseError:
    return HeadwiseError("report", f"{place or 'it'} to be {words}", _short(part), CUT)


def _short(part: Any) -> str:
    if isinstance(part, Mapping | list | tuple):
        return f"{type(part).__name__} of {len(part)}"
    text = repr(part)
    return text if len(text) <= 60 else text[:57] + "..."


def _maybe(inner: Check) -> Check:
    def check(part: Any, place: str) -> None:
        if part is not None:
            inner(part, place)

    return check


def _fields(**parts: Check) -> Check:
    def check(part: Any, place: str) -> None:
        OBJECT(part, place)
        for name, inner in parts.items():
            if name not in part:
                missing = f"{place}.{name}".lstrip(".")
                raise HeadwiseError("report", missing, f"a report without {missing}", CUT)
            inner(part[name], f"{place}.{name}".lstrip("."))

    return check


def _fields_and(more: Mapping[str, Check], **parts: Check) -> Check:
    """Fields, and others that may be missing."""
    every = _fields(**parts)

    def check(part: Any, place: str) -> None:
        every(part, place)
        for name, inner in more.items():
            if name in part:
                inner(part[name], f"{place}.{name}".lstrip("."))

    return check


def _each(inner: Check) -> Check:
    def check(part: Any, place: str) -> None:
        LIST(part, place)
        for i, item in enumerate(part):
            inner(item, f"{place}[{i}]")

    return check


def _values(inner: Check) -> Check:
    def check(part: Any, place: str) -> None:
        OBJECT(part, place)
        for name, item in part.items():
            TEXT(name, place)
            inner(item, f"{place}.{name}")

    return check


def _tuple(*inner: Check) -> Check:
    def check(part: Any, place: str) -> None:
        LIST(part, place)
        if len(part) != len(inner):
            raise _wrong(place, f"{len(inner)} items", part)
        for i, (item, one) in enumerate(zip(part, inner, strict=True)):
            one(item, f"{place}[{i}]")

    return check


def _numbers(kinds: tuple[type, ...], words: str) -> Check:
    """A list of numbers; written for speed, as most of a report are such lists."""
    allowed = frozenset(kinds)

    def check(part: Any, place: str) -> None:
        LIST(part, place)
        if len(part) > MOST_CELLS or not allowed.issuperset(map(type, part)):
            raise _wrong(place, words, next((item for item in part if type(item) not in allowed), part))

    return check


def _grid(row: Check) -> Check:
    """A list of lists of one length."""

    def check(part: Any, place: str) -> None:
        LIST(part, place)
        for i, item in enumerate(part):
            row(item, f"{place}[{i}]")
            if len(item) != len(part[0]):
                raise _wrong(f"{place}[{i}]", f"as long as {place}[0] ({len(part[0])})", item)

    return check


OBJECT = _of_kind(Mapping, "an object")
LIST = _of_kind(list | tuple, "a list")
TEXT = _of_kind(str, "a text")
COUNT = _of_kind(int, "a whole number")
NUMBER = _maybe(_of_kind(int | float, "a number or null"))
FLAG = _of_kind(bool, "true or false")
ANY: Check = lambda part, place: None  # noqa: E731
COUNTS = _numbers((int,), "a list of whole numbers")
NUMBERS = _numbers((int, float, type(None)), "a list of numbers")
SHARES = _numbers((int, float), "a list of numbers")
LINK = _tuple(COUNT, COUNT, _of_kind(int | float, "a number"))
LINE = _fields(value=NUMBER, null=NUMBER, share=NUMBER, rows=_maybe(COUNT), all_rows=NUMBER)
PLACE = {"layer": COUNT, "head": COUNT}

HEAD = _fields_and(
    {"distances": _maybe(_fields(least=COUNTS, mass=NUMBERS, null=NUMBERS))},  # added to version 2 later
    head=COUNT,
    label=TEXT,
    scores=_values(LINE),
    offsets=_maybe(_fields(at=COUNTS, mass=NUMBERS, argmax=NUMBERS)),
    received=_maybe(
        _fields(heaviest=_each(_tuple(COUNT, NUMBER, NUMBER)), sinks=_each(_tuple(COUNT, NUMBER)))
    ),
    links=_each(LINK),
    evidence=_maybe(LINK),
    rows=_fields(queries=_maybe(COUNTS), index=_grid(COUNTS), weight=_grid(NUMBERS)),
    pooled=_fields(block=COUNT, map=_grid(NUMBERS)),
)
RANKED = _each(_fields(**PLACE, value=NUMBER, null=NUMBER))
REPORT = _fields(
    headwise=TEXT,
    model=_fields(name=TEXT, layers=COUNT, heads=COUNT),
    text=_fields(source=_maybe(TEXT), n_tokens=COUNT),
    tokens=_each(TEXT),
    special=COUNTS,
    sequences=_each(_fields(name=TEXT, tokens=_each(TEXT), special=COUNTS)),
    check=_maybe(_fields(tokens=COUNT, max_abs_difference=NUMBER, causal_leak=NUMBER)),
    scores=_each(
        _fields(
            key=TEXT, name=TEXT, unit=TEXT, meaning=TEXT, null=TEXT, higher=TEXT, over=TEXT, source=TEXT,
            group=TEXT, range=_maybe(_tuple(NUMBER, NUMBER)),
        )
    ),
    labels=_each(
        _fields(
            key=TEXT, name=TEXT, meaning=TEXT, score=_maybe(TEXT), threshold=NUMBER, times_null=NUMBER,
            rows=_maybe(COUNT), reachable=FLAG,
        )
    ),
    layers=_each(
        _fields(
            layer=COUNT, name=TEXT, kind=TEXT, queries=TEXT, keys=TEXT, causal=FLAG, heads=_each(HEAD)
        )
    ),
    telling=_each(_fields(**PLACE, label=TEXT, score=TEXT, value=NUMBER, null=NUMBER)),
    notes=_each(TEXT),
    pairs=_maybe(
        _fields(many=COUNT, candidates=_maybe(COUNT), both_ways=FLAG, best=RANKED)
    ),
    sinks=_maybe(
        _fields(heads=COUNT, thresholds=SHARES, keys=_each(_fields(key=COUNT, shares=SHARES)))
    ),
    needle=_maybe(
        _fields(
            keys=TEXT, start=COUNT, stop=COUNT, steps=COUNT, possible=COUNT, threshold=NUMBER, heads=COUNT,
            above=COUNT, best=_each(_fields(**PLACE, value=NUMBER, null=NUMBER, counted=NUMBER)),
        )
    ),
    probe=_maybe(
        _fields(
            tokens=COUNT, block=COUNT, repeats=COUNT, sequences=COUNT, seed=COUNT,
            heads=_each(
                _fields(
                    **PLACE, induction=NUMBER, induction_control=NUMBER, induction_null=NUMBER,
                    induction_entry=NUMBER, preceding=NUMBER, previous=NUMBER, previous_all=NUMBER,
                    previous_null=NUMBER,
                )
            ),
        )
    ),
    redundancy=_maybe(
        _fields(
            threshold=NUMBER, rows=COUNT, verified=COUNT,
            pairs=_each(_fields(a=_tuple(COUNT, COUNT), b=_tuple(COUNT, COUNT), js=NUMBER, exact=FLAG)),
            clusters=_each(_each(_tuple(COUNT, COUNT))),
        )
    ),
    rollout=_maybe(
        _fields(groups=_each(_tuple(COUNT, COUNT)), map=_grid(NUMBERS), last=NUMBERS)
    ),
)  # fmt: skip


# ---- numbers that point at tokens, layers and scores


def _check_places(report: Mapping[str, Any]) -> None:
    n = len(report["tokens"])
    if report["text"]["n_tokens"] != n:
        raise _wrong("text.n_tokens", f"{n}, the number of tokens", report["text"]["n_tokens"])
    if not report["layers"] or not all(layer["heads"] for layer in report["layers"]):
        raise _wrong("layers", "at least one layer with at least one head", report["layers"])
    if not report["scores"]:
        raise _wrong("scores", "at least one score", report["scores"])
    _inside(report["special"], 0, n, "special")
    lengths = {}
    for i, sequence in enumerate(report["sequences"]):
        lengths[sequence["name"]] = len(sequence["tokens"])
        _inside(sequence["special"], 0, len(sequence["tokens"]), f"sequences[{i}].special")
    scores = {score["key"] for score in report["scores"]}
    heads = {}
    for i, layer in enumerate(report["layers"]):
        for name in ("queries", "keys"):
            if layer[name] not in lengths:
                raise _wrong(f"layers[{i}].{name}", f"one of {', '.join(lengths)}", layer[name])
        for j, head in enumerate(layer["heads"]):
            heads[layer["layer"], head["head"]] = head
            _check_head(head, lengths[layer["queries"]], lengths[layer["keys"]], f"layers[{i}].heads[{j}]")
    for i, entry in enumerate((report["sinks"] or {}).get("keys", ())):
        _inside([entry["key"]], 0, n, f"sinks.keys[{i}].key")
    for i, entry in enumerate(report["telling"]):
        place = f"telling[{i}]"
        if (entry["layer"], entry["head"]) not in heads:
            raise _wrong(place, "about a head of the report", (entry["layer"], entry["head"]))
        if entry["score"] not in scores:
            raise _wrong(f"{place}.score", "one of the scores", entry["score"])


def _check_head(head: Mapping[str, Any], n_q: int, n_k: int, place: str) -> None:
    rows = head["rows"]
    kept = n_q if rows["queries"] is None else len(rows["queries"])
    _inside(rows["queries"] or [], 0, n_q, f"{place}.rows.queries")
    if len(rows["index"]) != len(rows["weight"]) or len(rows["index"]) not in (0, kept):
        raise _wrong(f"{place}.rows", f"{kept} rows of keys and of weights", rows["index"])
    for i, (keys, weights) in enumerate(zip(rows["index"], rows["weight"], strict=True)):
        _inside(keys, -1, n_k, f"{place}.rows.index[{i}]")
        if len(weights) != len(keys):
            raise _wrong(f"{place}.rows.weight[{i}]", f"{len(keys)} weights", weights)
    for name, links in (
        ("links", head["links"]),
        ("evidence", [head["evidence"]] if head["evidence"] else []),
    ):
        _inside([link[0] for link in links], 0, n_q, f"{place}.{name}")
        _inside([link[1] for link in links], 0, n_k, f"{place}.{name}")
    if head["received"] is not None:
        for name, keys in head["received"].items():
            if name in ("heaviest", "sinks"):
                _inside([key[0] for key in keys], 0, n_k, f"{place}.received.{name}")
    if head["pooled"]["block"] < 1:
        raise _wrong(f"{place}.pooled.block", "at least 1", head["pooled"]["block"])


def _inside(numbers: Sequence[int], low: int, high: int, place: str) -> None:
    if numbers and not low <= min(numbers) <= max(numbers) < high:
        wrong = next(number for number in numbers if not low <= number < high)
        raise _wrong(place, f"positions from {low} to {high - 1}", wrong)
