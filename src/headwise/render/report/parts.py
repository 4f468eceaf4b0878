"""The parts of the terminal view that only some reports have: gold pairs, probe, alike heads, rollout, and
the whole card of one head."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headwise.errors import HeadwiseError
from headwise.plain.words import counted, sentence, visible
from headwise.render.report import words
from headwise.render.report.words import Report

_LISTED = 5  # rows of a small table
_BEST = 6  # heads of the probe's two lists
_GROUPS = 6  # groups of alike heads that are listed
_SHOWN = 12  # heads of a group that are named


def parts(report: Report) -> list[RenderableType]:
    """What the report holds beside the scores, each part after a blank line."""
    blocks = [
        _sinks(report),
        _probe(report),
        _pairs(report),
        _needle(report),
        _aligned(report),
        _alike(report),
        _rollout(report),
    ]
    return [line for block in blocks if block for line in (*block, Text())]


def one_head(report: Report, layer: int, head: int) -> list[RenderableType]:
    """Every score of one head, with its null, meaning and denominator; then its profile and what it looks at.

    Raises HeadwiseError for a head that the report does not have.
    """
    table = words.head_table(report)
    if (layer, head) not in table:
        layers, heads = sorted({at for at, _ in table}), sorted({at for _, at in table})
        expected = f"a layer from {layers[0]} to {layers[-1]} and a head from {heads[0]} to {heads[-1]}"
        raise HeadwiseError("head", expected, f"layer {layer}, head {head}", "--head 5.11")
    found = table[layer, head]
    where = next(entry for entry in report["layers"] if entry["layer"] == layer)
    label = next((one for one in report["labels"] if one["key"] == found["label"]), None)
    names = {score["key"]: score["name"] for score in report["scores"]}
    title = Text(f"Layer {layer}, head {head}: ", style="bold")
    title.append(visible(label["name"] if label else found["label"]))
    if label is not None and label["score"] is not None:
        title.append(f" ({visible(words.rule(label, found, names))})", style="not bold")
    kind = "cross-attention" if where["kind"] == "cross" else "self-attention"
    place = Text(visible(f"{where['name']}: {kind}, from {where['queries']} to {where['keys']}"), style="dim")
    return [
        title,
        place,
        Text(),
        _card(report, found),
        Text(),
        *_profile(found),
        *_by_distance(found),
        *_receives(report, where, found),
    ]


def _card(report: Report, head: dict[str, Any]) -> RenderableType:
    table = _table("score", "value", "uniform", "rows", "what it is")
    for score in report["scores"]:
        line = head["scores"].get(score["key"])
        if line is None:
            continue
        unit = f" ({score['unit']})" if score["unit"] else ""
        meaning = sentence(visible(score["meaning"]))
        if line["all_rows"] is not None:
            meaning += f" Over all queries: {words.number(line['all_rows'])}."
        rows = "" if line["rows"] is None else f"{line['rows']:,}"
        cells = (
            visible(score["name"]) + unit,
            words.number(line["value"]),
            words.number(line["null"]),
            rows,
        )
        table.add_row(*(Text(cell) for cell in cells), Text(meaning, style="dim"))
    return table


def _profile(head: dict[str, Any]) -> list[RenderableType]:
    offsets = head["offsets"]
    if offsets is None:
        return []
    table = _table("key at offset", "mean weight", "strongest key there")
    for at, mass, hits in zip(offsets["at"], offsets["mass"], offsets["argmax"], strict=False):
        if mass is not None or hits:
            share = "" if hits is None else f"{100 * hits:.0f} % of queries"
            table.add_row(
                Text(f"{at:+d}".replace("-", "\u2212") if at else "0"), Text(words.number(mass)), Text(share)
            )
    return [Text("By offset", style="bold"), table, Text()]


def _by_distance(head: dict[str, Any]) -> list[RenderableType]:
    away = head.get("distances")
    if away is None:
        return []
    table = _table("distance", "mean weight", "uniform")
    lasts = [least - 1 for least in away["least"][1:]] + [None]
    for least, last, mass, null in zip(away["least"], lasts, away["mass"], away["null"], strict=False):
        place = (
            f"{least} and more" if last is None else f"{least}" if last == least else f"{least}\u2013{last}"
        )
        table.add_row(Text(place), Text(words.number(mass)), Text(words.number(null)))
    return [Text("By distance", style="bold"), table, Text()]


def _receives(report: Report, layer: dict[str, Any], head: dict[str, Any]) -> list[RenderableType]:
    if head["received"] is None:
        return []
    tokens = words.texts(report)[layer["keys"]][0]
    table = _table("token", "place", "weight received", "mean per query that sees it")
    for key, total, mean in head["received"]["heaviest"]:
        table.add_row(Text(f'"{tokens[key]}"', overflow="ellipsis", no_wrap=True), Text(str(key)),
                      Text(words.number(total)), Text(words.number(mean)))  # fmt: skip
    return [Text("Tokens that receive most", style="bold"), table]


def _sinks(report: Report) -> list[RenderableType]:
    sinks = report["sinks"]
    if sinks is None or not sinks["keys"]:
        return []
    tokens = [visible(token) for token in report["tokens"]]
    limits = [f"above {least:g}" for least in sinks["thresholds"]]
    table = _table("token", "place", *limits)
    for entry in sinks["keys"]:
        shares = (f"{100 * share:.0f} % of heads" for share in entry["shares"])
        cells = (f'"{tokens[entry["key"]]}"', str(entry["key"]), *shares)
        table.add_row(*(Text(cell, overflow="ellipsis", no_wrap=True) for cell in cells))
    title = Text("Attention sinks", style="bold")
    measure = "tokens by their mean weight over the queries that see them (Gu et al. 2024: a sink above 0.3)"
    return [title, Text(measure, style="dim"), table]


def _probe(report: Report) -> list[RenderableType]:
    probe = report["probe"]
    if probe is None:
        return []
    blocks: list[RenderableType] = [
        Text("Random-token probe", style="bold"),
        Text(
            f"{counted(probe['sequences'], 'sequence')} of {probe['block']} random tokens, "
            f"{probe['repeats']} times over. Control: random tokens that never repeat."
        ),
    ]
    induction = _table("layer", "head", "induction", "uniform", "control")
    for entry in _best(probe["heads"], "induction", _BEST):
        keys = ("induction", "induction_null", "induction_control")
        induction.add_row(*_place(entry), *(Text(words.number(entry[key])) for key in keys))
    previous = _table("layer", "head", "previous token", "uniform")
    for entry in _best(probe["heads"], "previous", _BEST):
        previous.add_row(
            *_place(entry), *(Text(words.number(entry[key])) for key in ("previous", "previous_null"))
        )
    return [*blocks, induction, previous]


def _pairs(report: Report) -> list[RenderableType]:
    pairs = report["pairs"]
    if pairs is None:
        return []
    ways = ", both ways" if pairs["both_ways"] else ""
    among = "" if pairs["candidates"] is None else f", among {counted(pairs['candidates'], 'candidate')}"
    table = _table("layer", "head", "found", "uniform", "weight", "same distances")
    for entry in pairs["best"][:_LISTED]:
        numbers = (entry["value"], entry["null"], entry.get("mass"), entry.get("matched"))
        table.add_row(*_place(entry), *(Text(words.number(number)) for number in numbers))
    title = Text(f"Heads that find the {counted(pairs['many'], 'gold pair')}{ways}{among}", style="bold")
    return [title, table]


def _needle(report: Report) -> list[RenderableType]:
    needle = report["needle"]
    if needle is None:
        return []
    last = needle["stop"] - 1
    where = f"token {needle['start']}" if needle["start"] == last else f"tokens {needle['start']}\u2013{last}"
    title = Text(f"Heads that copy the needle ({where} of the {visible(needle['keys'])})", style="bold")
    steps, heads = counted(needle["steps"], "token"), counted(needle["heads"], "head")
    written = (
        f"{steps} written, {needle['possible']:,} of them tokens of the needle. "
        f"{needle['above']:,} of {heads} copy more than {words.number(needle['threshold'])} of it."
    )
    if not needle["best"]:
        return [title, Text(written)]
    table = _table("layer", "head", "copied", "uniform", "every step counted")
    for entry in needle["best"][:_BEST]:
        numbers = (entry["value"], entry["null"], entry["counted"])
        table.add_row(*_place(entry), *(Text(words.number(number)) for number in numbers))
    return [title, Text(written), table]


def _aligned(report: Report) -> list[RenderableType]:
    found = [
        {"layer": layer["layer"], "head": head["head"], "scores": head["scores"]}
        for layer in report["layers"]
        for head in layer["heads"]
        if layer["kind"] == "cross" and head["scores"].get("alignment", {}).get("value") is not None
    ]
    if not found:
        return []
    found.sort(key=lambda entry: -entry["scores"]["alignment"]["value"])
    table = _table("layer", "head", "alignment", "monotonic steps")
    for entry in found[:_LISTED]:
        line = entry["scores"].get("monotonic", {})
        table.add_row(
            *_place(entry),
            Text(words.number(entry["scores"]["alignment"]["value"])),
            Text(words.number(line.get("value"))),
        )
    return [Text("Cross-attention that moves along with the text", style="bold"), table]


def _alike(report: Report) -> list[RenderableType]:
    alike = report["redundancy"]
    if alike is None:
        return []
    groups, threshold = alike["clusters"], words.number(alike["threshold"])
    title = Text("Heads that look alike", style="bold")
    measure = (
        f"mean Jensen\u2013Shannon divergence at most {threshold} nats; "
        "0 = the same weights, 0.69 = no key in common"
    )
    if not groups:
        return [title, Text(f"None ({measure}).")]
    lines: list[RenderableType] = [title, Text(f"Groups of heads, {measure}:", style="dim")]
    for group in groups[:_GROUPS]:
        names = ", ".join(f"{layer}.{head}" for layer, head in group[:_SHOWN])
        more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
        lines.append(Text(f"  {counted(len(group), 'head')}: {names}{more}"))
    if len(groups) > _GROUPS:
        lines.append(Text(f"  and {counted(len(groups) - _GROUPS, 'more group')}"))
    return lines


def _rollout(report: Report) -> list[RenderableType]:
    rollout = report["rollout"]
    if rollout is None:
        return []
    table = _table("tokens", "share of the last token", "uniform")
    uniform = rollout.get("null_last") or [None] * len(rollout["groups"])
    for (start, stop), share, equal in zip(rollout["groups"], rollout["last"], uniform, strict=False):
        place = f"{start}" if stop == start + 1 else f"{start}\u2013{stop - 1}"
        table.add_row(Text(place), Text(words.number(share)), Text(words.number(equal)))
    return [Text("Attention rollout through all layers", style="bold"), table]


def _best(heads: Sequence[dict[str, Any]], key: str, many: int) -> list[dict[str, Any]]:
    known = [entry for entry in heads if entry[key] is not None]
    return sorted(known, key=lambda entry: -entry[key])[:many]


def _place(entry: dict[str, Any]) -> tuple[Text, Text]:
    return Text(str(entry["layer"])), Text(str(entry["head"]))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in columns:
        words_in = name in ("score", "what it is", "token", "tokens")
        table.add_column(name, justify="left" if words_in else "right", overflow="fold")
    return table
