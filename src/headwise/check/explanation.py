"""What the rules and the mistakes mean, each with an example that is computed on the spot."""

import difflib
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from headwise.check.cases.case import Case
from headwise.check.cases.chain import RIGHT, Fault, attend
from headwise.check.cases.layer_case import LayerFault, attend_layer, random_layer
from headwise.check.faults import ALL
from headwise.check.glossary import EXAMPLES, FINDINGS, MEANS, TYPICAL
from headwise.check.subjects.presets import preset
from headwise.check.suite import RULES
from headwise.errors import HeadwiseError
from headwise.plain.types import Array

_WIDTH = 80


def listing(contract: str | None = None) -> Table:
    """The rules, what each asks, and whether the contract has it as a must or a note."""
    chosen = preset("default" if contract is None else contract)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", title=None)
    table.add_column("rule", no_wrap=True)
    table.add_column(chosen.name, no_wrap=True)
    table.add_column("asks that", ratio=1)
    for rule in RULES:
        needs = {name for name in rule.needs if "|" not in name}
        served = chosen.features is None or needs <= set(chosen.features)
        level = "note" if rule.name in chosen.notes else "must" if served else "\u2013"
        asked = rule.says if not rule.needs else f"{rule.says} ({_options(rule.needs)})"
        table.add_row(Text(rule.name), Text(level), Text(asked))
    return table


def explain(name: str) -> str:
    """The text on a rule or a mistake.

    Raises:
        HeadwiseError: there is none of that name; the hint has the nearest.
    """
    for rule in RULES:
        if rule.name == name:
            return _rule(rule.name, rule.says, rule.needs)
    mistakes = [one for one in ALL if one.key == name]
    if mistakes:
        return "\n\n".join(_mistake(one) for one in mistakes)
    if name in FINDINGS:
        what, repair = FINDINGS[name]
        return "\n".join([f"{name}: a mistake", "", *_line("Does", what), *_line("Instead", repair)])
    known = [*(rule.name for rule in RULES), *(one.key for one in ALL), *FINDINGS]
    near = difflib.get_close_matches(name, known, 3, 0.4)
    hint = (
        f"perhaps {' or '.join(repr(one) for one in near)}"
        if near
        else "headwise check --list names the rules"
    )
    raise HeadwiseError("--explain", "the name of a rule or of a mistake", name, hint)


def _rule(name: str, says: str, needs: frozenset[str]) -> str:
    lines = [f"{name}: a rule", "", *_line("Asks that", says)]
    if needs:
        lines += _line("Of", f"functions that serve {_options(needs)}")
    lines += ["", *_wrapped(MEANS[name])]
    if name in EXAMPLES:
        lines += ["", *_wrapped(EXAMPLES[name])]
    typical = TYPICAL.get(name, ())
    for key in typical:
        found = next(one for one in ALL if one.key == key)
        said = f"A mistake that it finds, \u201c{key}\u201d: {found.what}."
        lines += ["", *_wrapped(said), *_example(found)]
        if found.seen:
            lines += _line("Met in", ", ".join(found.seen))
    return "\n".join(lines)


def _mistake(one: "Fault | LayerFault") -> str:
    lines = [f"{one.key}: a mistake", "", *_line("Does", one.what), *_line("Instead", one.repair)]
    if one.seen:
        lines += _line("Met in", ", ".join(one.seen))
    return "\n".join([*lines, "", *_example(one)])


def _options(needs: frozenset[str]) -> str:
    return " and ".join(sorted(needs)).replace("|", " or ")


def _line(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"  {label:<11}", subsequent_indent=" " * 13)


def _wrapped(text: str, width: int = _WIDTH) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ")


def _example(one: "Fault | LayerFault") -> list[str]:
    """The first row that the mistake changes, right and wrong: weights where they show it, else outputs."""
    with np.errstate(all="ignore"):
        if isinstance(one, LayerFault):
            return _layer_example(one)
        for read_weights in (True, False):
            case = _tiny(one, read_weights)
            right = attend(case)
            try:
                wrong = attend(case, RIGHT.exchange(one.changes))
            except (ValueError, IndexError):
                continue
            shown = _rows(right, wrong, case, "weights" if read_weights else "output")
            if shown:
                return shown
    return ["  Example: the numbers do not change; the difference shows in special cases only."]


def _rows(right: Array, wrong: Array, case: Case, what: str) -> list[str]:
    if right.shape != wrong.shape:
        return []
    places = np.argwhere(np.abs(right - wrong).max(-1) > 1e-3)
    if not len(places):
        return []
    b, h, i = places[0]
    sizes = f"H = {case.query.shape[1]}, n_q = {case.n_q}, n_k = {case.n_k}, d_k = {case.query.shape[-1]}"
    place = f"batch {b}, head {h}, query {i}"
    head = h // case.group
    lines = [f"  Example ({sizes}), {place}:", f"  q       {_vector(case.query[b, h, i])}"]
    if case.past_key is None:
        lines += [f"  keys    {', '.join(_vector(k) for k in case.key[b, head])}"]
    return [
        *lines,
        f"  {what:<8}right   {_numbers(right[b, h, i])}",
        f"  {'':<8}mistake {_numbers(wrong[b, h, i])}",
    ]


def _vector(row: Array) -> str:
    return "(" + ", ".join(f"{x:g}" for x in row) + ")"


def _numbers(row: Array) -> str:
    return "  ".join(f"{x:.3f}" for x in row)


def _tiny(one: Fault, read_weights: bool) -> Case:
    """Small whole numbers; the values are one-hot where the weights are to be read."""
    random = np.random.default_rng(1)
    needs = one.needs
    heads, kv_heads = (6, 2) if "gqa" in needs else (2, 2)
    width = 4 if "rope" in needs else 2
    past = 2 if "cache" in needs else 0
    n_q, n_k = (2, 4) if "other corner" in one.key else (5, 5) if "window" in needs else (3, 3)
    whole = random.integers

    def key(n: int) -> Array:
        return whole(-2, 3, (2, kv_heads, n, width)).astype(float)

    query, keys = whole(-2, 3, (2, heads, n_q, width)).astype(float), key(n_k)
    if read_weights:
        values = np.broadcast_to(np.eye(past + n_k)[past:], (2, kv_heads, n_k, past + n_k)).copy()
    else:
        values = whole(-3, 4, (2, kv_heads, n_k, width)).astype(float)
    case = Case(query, keys, values, num_heads=heads)
    changes: dict[str, Any] = {"is_causal": bool(needs & {"causal", "cache"})}
    hides = {"hidden", "combined"} & set(one.changes)
    if "mask" in needs or (hides and not changes["is_causal"]):
        mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], bool)[:n_q]
        if n_q == n_k == 3:
            changes["mask"] = np.stack([mask, mask[::-1]])[:, None]
    if "padding" in needs:
        changes["padding"] = np.array([[True, True, False], [True, False, False]])
        changes.setdefault("mask", None)
    if "bias" in needs:
        changes["bias"] = whole(-2, 3, (heads, n_q, n_k)).astype(float)
    if "scale" in needs:
        changes["scale"] = 0.5
    if "softcap" in needs:
        changes["softcap"] = 1.0
    if "window" in needs:
        changes |= {"window": (1, None), "is_causal": True}
    if "rope" in needs:
        changes["rotary_base"] = 100.0
    case = replace(case, **changes)
    if past:
        from headwise.check.cases.case import turn

        earlier = key(past)
        front = np.broadcast_to(np.eye(past + n_k)[:past], (2, kv_heads, past, past + n_k))
        case = replace(
            case, past_key=earlier,
            past_value=front if read_weights else whole(-3, 4, earlier.shape).astype(float),
            past_key_turned=turn(case, earlier, 0) if "rope" in needs else None,
        )  # fmt: skip
    return case


def _layer_example(one: LayerFault) -> list[str]:
    case = random_layer(np.random.default_rng(1), batch=1, n=3, heads=2, width=2)
    right, wrong = attend_layer(case, None), one.make(case, RIGHT)
    places = np.argwhere(np.abs(right - wrong).max(-1) > 1e-3)
    if not len(places):
        return ["  Example: the numbers do not change."]
    b, i = places[0]
    return [
        f"  Example (H = 2, n = 3, d_model = 4), position {i}:",
        f"  output  right   {_numbers(right[b, i])}",
        f"          mistake {_numbers(wrong[b, i])}",
    ]
