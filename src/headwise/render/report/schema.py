"""What a report looks like: its parts, as types from which one is checked, and the rules beside them.

A report may come from anywhere (``headwise show`` draws a file), so every part that a picture reads is
checked once, here; the rest of the package may then take it for granted. Parts that are not known are left
alone.
"""

# ruff: noqa: UP013  # a table of parts: as classes it would be three times as long

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypeAlias, TypedDict

from headwise.errors import HeadwiseError
from headwise.plain.stored import Source, reader

SCHEMA = "headwise.report"
VERSION = 2
ADDED = ("needle", "sinks")  # parts that a report of this version may lack: earlier ones did not have them
CUT = "the file may be cut or edited"

Number: TypeAlias = float | None
Numbers: TypeAlias = list[float | None]
Grid: TypeAlias = list[list[float | None]]  # rows of one length


Model = TypedDict("Model", {"name": str, "layers": int, "heads": int})
Text = TypedDict("Text", {"source": str | None, "n_tokens": int})
Tokens = TypedDict("Tokens", {"name": str, "tokens": list[str], "special": list[int]})
SelfTest = TypedDict("SelfTest", {"tokens": int, "max_abs_difference": Number, "causal_leak": Number})
Score = TypedDict("Score", {
    "key": str, "name": str, "unit": str, "meaning": str, "null": str, "higher": str, "over": str,
    "source": str, "group": str, "range": tuple[Number, Number] | None,
})  # fmt: skip
Label = TypedDict("Label", {
    "key": str, "name": str, "meaning": str, "score": str | None, "threshold": Number, "times_null": Number,
    "rows": int | None, "reachable": bool,
})  # fmt: skip
Line = TypedDict("Line", {
    "value": Number, "null": Number, "share": Number, "rows": int | None, "all_rows": Number,
})  # fmt: skip
Offsets = TypedDict("Offsets", {"at": list[int], "mass": Numbers, "argmax": Numbers})
Received = TypedDict("Received", {
    "heaviest": list[tuple[int, Number, Number]], "sinks": list[tuple[int, Number]],
})  # fmt: skip
Rows = TypedDict("Rows", {"queries": list[int] | None, "index": list[list[int]], "weight": Grid})
Pooled = TypedDict("Pooled", {"block": int, "map": Grid})
Distances = TypedDict("Distances", {"least": list[int], "mass": Numbers, "null": Numbers})
Link: TypeAlias = tuple[int, int, float]  # query, key, weight
Head = TypedDict("Head", {
    "head": int, "label": str, "scores": dict[str, Line], "offsets": Offsets | None,
    "received": Received | None, "links": list[Link], "evidence": Link | None, "rows": Rows, "pooled": Pooled,
    "distances": NotRequired[Distances | None],
})  # fmt: skip
Layer = TypedDict("Layer", {
    "layer": int, "name": str, "kind": str, "queries": str, "keys": str, "causal": bool, "heads": list[Head],
})  # fmt: skip
Ranked = TypedDict("Ranked", {"layer": int, "head": int, "value": Number, "null": Number})
Telling = TypedDict("Telling", {
    "layer": int, "head": int, "label": str, "score": str, "value": Number, "null": Number,
})  # fmt: skip
Pairs = TypedDict("Pairs", {"many": int, "candidates": int | None, "both_ways": bool, "best": list[Ranked]})
SinkKey = TypedDict("SinkKey", {"key": int, "shares": list[float]})
Sinks = TypedDict("Sinks", {"heads": int, "thresholds": list[float], "keys": list[SinkKey]})
Copying = TypedDict("Copying", {
    "layer": int, "head": int, "value": Number, "null": Number, "counted": Number,
})  # fmt: skip
Needle = TypedDict("Needle", {
    "keys": str, "start": int, "stop": int, "steps": int, "possible": int, "threshold": Number, "heads": int,
    "above": int, "best": list[Copying],
})  # fmt: skip
Probed = TypedDict("Probed", {
    "layer": int, "head": int, "induction": Number, "induction_control": Number, "induction_null": Number,
    "induction_entry": Number, "preceding": Number, "previous": Number, "previous_all": Number,
    "previous_null": Number,
})  # fmt: skip
Probe = TypedDict("Probe", {
    "tokens": int, "block": int, "repeats": int, "sequences": int, "seed": int, "heads": list[Probed],
})  # fmt: skip
Alike = TypedDict("Alike", {"a": tuple[int, int], "b": tuple[int, int], "js": Number, "exact": bool})
Redundancy = TypedDict("Redundancy", {
    "threshold": Number, "rows": int, "verified": int, "pairs": list[Alike],
    "clusters": list[list[tuple[int, int]]],
})  # fmt: skip
Rollout = TypedDict("Rollout", {"groups": list[tuple[int, int]], "map": Grid, "last": Numbers})
Report = TypedDict("Report", {
    "headwise": str, "model": Model, "text": Text, "tokens": list[str], "special": list[int],
    "sequences": list[Tokens], "check": SelfTest | None, "scores": list[Score], "labels": list[Label],
    "layers": list[Layer], "telling": list[Telling], "notes": list[str], "pairs": Pairs | None,
    "sinks": Sinks | None, "needle": Needle | None, "probe": Probe | None, "redundancy": Redundancy | None,
    "rollout": Rollout | None,
})  # fmt: skip


class _ReportSource(Source):
    words = {
        str: "a text",
        str | None: "a text",
        int: "a whole number",
        int | None: "a whole number",
        float: "a number",
        float | None: "a number or null",
        bool: "true or false",
        list: "a list",
        list[int]: "a list of whole numbers",
        list[float]: "a list of numbers",
        list[float | None]: "a list of numbers",
        dict: "an object",
    }
    finite = False

    def refusal(self, place: str, expected: str, found: Any) -> HeadwiseError:
        return HeadwiseError(self.name, f"{place or 'it'} to be {expected}", _short(found), self.hint)

    def without(self, place: str, field: str) -> HeadwiseError:
        missing = f"{place}.{field}".lstrip(".")
        return HeadwiseError(self.name, missing, f"a report without {missing}", self.hint)


def _short(part: Any) -> str:
    if isinstance(part, Mapping | list | tuple):
        return f"{type(part).__name__} of {len(part)}"
    text = repr(part)
    return text if len(text) <= 60 else text[:57] + "..."


SOURCE = _ReportSource("report", CUT)
_wrong = SOURCE.refusal


def read(report: Any) -> dict[str, Any]:
    """The report, with None for the parts that it may lack; what was given is not touched.

    Raises:
        HeadwiseError: no report, one of another version, or a part that is missing or of another kind; the
            message names the part.
    """
    found = report.get("schema") if isinstance(report, Mapping) else type(report).__name__
    if not isinstance(report, Mapping) or found != SCHEMA:
        hint = "pass HeadReport.to_dict(), or the file that --json wrote"
        raise HeadwiseError("report", f"a dict with schema {SCHEMA!r}", _short(found), hint)
    version = report.get("version")
    if type(version) is not int or version != VERSION:
        hint = "pip install --upgrade headwise"
        raise HeadwiseError("report", f"version {VERSION}", f"version {_short(version)}", hint)
    current = dict.fromkeys(ADDED) | dict(report)
    reader(Report, SOURCE)(current, "")
    _check_places(current)
    return current


# ---- what no type says: rows of one length, and numbers that point at tokens, layers and scores


def _check_places(report: Mapping[str, Any]) -> None:
    if report["rollout"] is not None:
        _one_length(report["rollout"]["map"], "rollout.map")
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
    for part, name in (("rows", "index"), ("rows", "weight"), ("pooled", "map")):
        _one_length(head[part][name], f"{place}.{part}.{name}")
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


def _one_length(grid: Sequence[Sequence[Any]], place: str) -> None:
    for i, row in enumerate(grid):
        if len(row) != len(grid[0]):
            raise _wrong(f"{place}[{i}]", f"as long as {place}[0] ({len(grid[0])})", row)


def _inside(numbers: Sequence[int], low: int, high: int, place: str) -> None:
    if numbers and not low <= min(numbers) <= max(numbers) < high:
        wrong = next(number for number in numbers if not low <= number < high)
        raise _wrong(place, f"positions from {low} to {high - 1}", wrong)
