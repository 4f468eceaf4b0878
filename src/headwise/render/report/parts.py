"""The parts that only some reports have, beside scores and links, as plain text: made once, drawn by the
terminal and by the page.

A new part is one function here, named in `_OF_REPORT` or `_OF_HEAD`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwise.plain.numbers import rounded
from headwise.plain.words import counted, visible
from headwise.render.report.words import Entry, Head, Layer, Report

IN_WORDS = ("token", "tokens")  # columns of words; all others are of numbers
_LISTED = 5  # rows of a small table
_BEST = 6  # heads of the probe's two lists, and of the needle's
_GROUPS = 6  # groups of alike heads that are listed
_SHOWN = 12  # heads of a group that are named


@dataclass(frozen=True)
class Table:
    """Cells under the names of their columns. The cells of the first `cut` columns are cut where they are too
    wide, others are broken."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    cut: int = 0


@dataclass(frozen=True)
class Part:
    """A title, how it is measured, what is found in sentences, a list, and tables; none of them but the title
    has to be there."""

    title: str
    measure: str = ""
    sentences: Sequence[str] = ()
    items: Sequence[str] = ()
    tables: Sequence[Table] = ()


def parts(report: Report) -> list[Part]:
    """What the report holds about all heads together."""
    return [part for part in (made(report) for made in _OF_REPORT) if part is not None]


def head_parts(report: Report, layer: Layer, head: Head) -> list[Part]:
    """What the report holds about one head, of this layer."""
    return [part for part in (made(report, layer, head) for made in _OF_HEAD) if part is not None]


def _sinks(report: Report) -> Part | None:
    sinks = report["sinks"]
    if sinks is None or not sinks["keys"]:
        return None
    columns = ["token", "place", *(f"above {least:g}" for least in sinks["thresholds"])]
    rows = [
        [
            _quoted(report["tokens"][entry["key"]]),
            str(entry["key"]),
            *(f"{100 * share:.0f} % of heads" for share in entry["shares"]),
        ]
        for entry in sinks["keys"]
    ]
    measure = "tokens by their mean weight over the queries that see them (Gu et al. 2024: a sink above 0.3)"
    return Part("Attention sinks", measure, tables=[Table(columns, rows, cut=len(columns))])


def _probe(report: Report) -> Part | None:
    probe = report["probe"]
    if probe is None:
        return None
    said = (
        f"{counted(probe['sequences'], 'sequence')} of {probe['block']} random tokens, "
        f"{probe['repeats']} times over. Control: random tokens that never repeat."
    )
    induction = {"induction": "induction", "uniform": "induction_null", "control": "induction_control"}
    previous = {"previous token": "previous", "uniform": "previous_null"}
    tables = [
        _ranking(_best(probe["heads"], "induction"), induction),
        _ranking(_best(probe["heads"], "previous"), previous),
    ]
    return Part("Random-token probe", sentences=[said], tables=tables)


def _pairs(report: Report) -> Part | None:
    pairs = report["pairs"]
    if pairs is None:
        return None
    ways = ", both ways" if pairs["both_ways"] else ""
    among = "" if pairs["candidates"] is None else f", among {counted(pairs['candidates'], 'candidate')}"
    title = f"Heads that find the {counted(pairs['many'], 'gold pair')}{ways}{among}"
    columns = {"found": "value", "uniform": "null", "weight": "mass", "same distances": "matched"}
    return Part(title, tables=[_ranking(pairs["best"][:_LISTED], columns)])


def _needle(report: Report) -> Part | None:
    needle = report["needle"]
    if needle is None:
        return None
    last = needle["stop"] - 1
    where = f"token {needle['start']}" if needle["start"] == last else f"tokens {needle['start']}\u2013{last}"
    steps, heads = counted(needle["steps"], "token"), counted(needle["heads"], "head")
    said = (
        f"{steps} written, {needle['possible']:,} of them tokens of the needle. "
        f"{needle['above']:,} of {heads} copy more than {rounded(needle['threshold'])} of it."
    )
    columns = {"copied": "value", "uniform": "null", "every step counted": "counted"}
    tables = [_ranking(needle["best"][:_BEST], columns)] if needle["best"] else []
    title = f"Heads that copy the needle ({where} of the {visible(needle['keys'])})"
    return Part(title, sentences=[said], tables=tables)


def _aligned(report: Report) -> Part | None:
    found = [
        {"layer": layer["layer"], "head": head["head"]}
        | {key: head["scores"].get(key, {}).get("value") for key in ("alignment", "monotonic")}
        for layer in report["layers"]
        for head in layer["heads"]
        if layer["kind"] == "cross"
    ]
    best = _best(found, "alignment", _LISTED)
    columns = {"alignment": "alignment", "monotonic steps": "monotonic"}
    title = "Cross-attention that moves along with the text"
    return Part(title, tables=[_ranking(best, columns)]) if best else None


def _alike(report: Report) -> Part | None:
    alike = report["redundancy"]
    if alike is None:
        return None
    title, groups = "Heads that look alike", alike["clusters"]
    measure = (
        f"mean Jensen\u2013Shannon divergence at most {rounded(alike['threshold'])} nats; "
        "0 = the same weights, 0.69 = no key in common"
    )
    if not groups:
        return Part(title, sentences=[f"None ({measure})."])
    items = []
    for group in groups[:_GROUPS]:
        names = ", ".join(f"{layer}.{head}" for layer, head in group[:_SHOWN])
        more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
        items.append(f"{counted(len(group), 'head')}: {names}{more}")
    if len(groups) > _GROUPS:
        items.append(f"and {counted(len(groups) - _GROUPS, 'more group')}")
    return Part(title, f"Groups of heads, {measure}:", items=items)


def _rollout(report: Report) -> Part | None:
    rollout = report["rollout"]
    if rollout is None:
        return None
    uniform = rollout.get("null_last") or [None] * len(rollout["groups"])
    rows = [
        (_reach(start, stop - 1), rounded(share), rounded(equal))
        for (start, stop), share, equal in zip(rollout["groups"], rollout["last"], uniform, strict=False)
    ]
    table = Table(("tokens", "share of the last token", "uniform"), rows)
    return Part("Attention rollout through all layers", tables=[table])


def _offsets(report: Report, layer: Layer, head: Head) -> Part | None:
    offsets = head["offsets"]
    if offsets is None:
        return None
    rows = [
        (
            f"{at:+d}".replace("-", "\u2212") if at else "0",
            rounded(mass),
            "" if hits is None else f"{100 * hits:.0f} % of queries",
        )
        for at, mass, hits in zip(offsets["at"], offsets["mass"], offsets["argmax"], strict=False)
        if mass is not None or hits
    ]
    return Part("By offset", tables=[Table(("key at offset", "mean weight", "strongest key there"), rows)])


def _distances(report: Report, layer: Layer, head: Head) -> Part | None:
    away = head.get("distances")
    if away is None:
        return None
    lasts = [least - 1 for least in away["least"][1:]] + [None]
    rows = [
        (f"{least} and more" if last is None else _reach(least, last), rounded(mass), rounded(null))
        for least, last, mass, null in zip(away["least"], lasts, away["mass"], away["null"], strict=False)
    ]
    return Part("By distance", tables=[Table(("distance", "mean weight", "uniform"), rows)])


def _received(report: Report, layer: Layer, head: Head) -> Part | None:
    if head["received"] is None:
        return None
    tokens = {one["name"]: one["tokens"] for one in report["sequences"]}[layer["keys"]]
    rows = [
        (_quoted(tokens[key]), str(key), rounded(total), rounded(mean))
        for key, total, mean in head["received"]["heaviest"]
    ]
    columns = ("token", "place", "weight received", "mean per query that sees it")
    return Part("Tokens that receive most", tables=[Table(columns, rows, cut=1)])


# Which parts there are, in the order in which they are shown.
_OF_REPORT: Sequence[Callable[[Report], Part | None]] = (
    _sinks, _probe, _pairs, _needle, _aligned, _alike, _rollout,
)  # fmt: skip
_OF_HEAD: Sequence[Callable[[Report, Layer, Head], Part | None]] = (_offsets, _distances, _received)


def _ranking(entries: Sequence[Entry], columns: dict[str, str]) -> Table:
    """A head a row; `columns`: name of a column -> key of its number in the entries."""
    rows = [
        [str(entry["layer"]), str(entry["head"]), *(rounded(entry.get(key)) for key in columns.values())]
        for entry in entries
    ]
    return Table(("layer", "head", *columns), rows)


def _best(heads: Sequence[Entry], key: str, many: int = _BEST) -> list[Entry]:
    known = [entry for entry in heads if entry[key] is not None]
    return sorted(known, key=lambda entry: -entry[key])[:many]


def _reach(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}\u2013{last}"


def _quoted(token: str) -> str:
    return f'"{visible(token)}"'
