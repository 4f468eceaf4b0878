"""The words and numbers that both pictures share.

Everything here takes the plain dict of a report (or a part of it) and gives plain text, so that the terminal
and the page say the same thing in the same words.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from headwise.plain.numbers import rounded, weight
from headwise.plain.words import counted, inner, series, visible

# Parts of a report: plain dicts.
Report: TypeAlias = Mapping[str, Any]
Layer: TypeAlias = Mapping[str, Any]
Head: TypeAlias = Mapping[str, Any]
Label: TypeAlias = Mapping[str, Any]
Score: TypeAlias = Mapping[str, Any]  # what a score is
Cell: TypeAlias = Mapping[str, Any]  # what a head has of a score
Entry: TypeAlias = Mapping[str, Any]  # one head in a ranking

UNLABELLED = "unlabelled"
CAVEAT = (
    "A weight says where a head looked. It is not proof of what the model used for its answer "
    "(Jain and Wallace 2019, \u201cAttention is not Explanation\u201d)."
)
_ABOUT_SPECIAL = ("special", "first")  # scores of labels that are about tokens which the links leave out
_WEAK = 0.1  # a link between two words below it tells less than a stronger one of another kind
_PRONOUNS = frozenset({"he", "her", "him", "his", "it", "its", "she", "their", "them", "they", "who"})
_ORIGINS = {"built-in example": " of the built-in example", "command line": " from the command line"}
GROUPS = {
    "spread": "How widely it looks",
    "position": "Where it looks",
    "sinks": "What it rests on",
    "content": "What it matches",
    "values": "What it writes",
    "cross": "Where it looks in the other sequence",
    "pairs": "Gold pairs",
    "needle": "The needle",
    "classes": "Your own classes",
}  # headings of the score card
LINKS_LEAVE_OUT = (
    "Links leave out special tokens and the token itself where others exist, "
    "except for heads that rest on those."
)


def link(query: str, key: str, value: float) -> str:
    """``"it" → "cat" .41``."""
    return f'"{query}" \u2192 "{key}" {weight(value)}'


def strongest(head: Head, label: Label, special: Collection[int]) -> tuple[int, int, float] | None:
    """The (query, key, weight) that tells most about the head, None where it links no two tokens.

    Links leave out special tokens and the token itself. A head whose label is about special tokens is told by
    its largest weight, and so is an unlabelled one whose links are all weak; an induction head by its
    strongest link that counts for the label.
    """
    best = tuple(head["links"][0]) if head["links"] else None
    if head.get("evidence"):
        return tuple(head["evidence"])
    if label.get("score") in _ABOUT_SPECIAL:
        return _largest(head, special, itself=False) or best
    if label.get("score") is None and best is not None and best[2] < _WEAK:
        largest = _largest(head, special, itself=True)
        return largest if largest is not None and largest[2] > best[2] else best
    return best


def _largest(head: Head, special: Collection[int], itself: bool) -> tuple[int, int, float] | None:
    """The largest weight over the rows, from a query that is not special where there is one.

    `itself` says whether a weight of a token on itself counts.
    """
    ends = [(q, keys[0], weights[0]) for q, keys, weights in kept_rows(head) if keys]
    ends = [end for end in ends if end[1] != -1 and (itself or end[1] != end[0])]
    ends = [end for end in ends if end[0] not in special] or ends
    return max(ends, key=lambda end: end[2], default=None)


def kept_rows(head: Head) -> Iterator[tuple[int, list[int], list[float]]]:
    """(query, its strongest keys, their weights) of every row that the report holds."""
    rows = head["rows"]
    queries = rows.get("queries")
    queries = range(len(rows["index"])) if queries is None else queries
    return zip(queries, rows["index"], rows["weight"], strict=False)


def pronoun_link(report: Report) -> tuple[int, int, int, int] | None:
    """(layer, head, query, key) of the strongest link from a pronoun to an earlier word; None without one.

    Only unlabelled heads of the last layer count: there a token has gathered most of its sentence, and a
    label already says where a head looks.
    """
    special = set(report.get("special", ()))
    pronouns = {q for q, token in enumerate(report["tokens"]) if token.lower() in _PRONOUNS}
    layer = report["layers"][-1]
    main = report["sequences"][0]["name"] if report.get("sequences") else None
    if layer.get("queries", main) != main or layer.get("keys", main) != main:
        return None
    found = [
        (weight, layer["layer"], head["head"], query, key)
        for head in layer["heads"]
        if head["label"] == UNLABELLED
        for query, keys, weights in kept_rows(head)
        if query in pronouns
        for key, weight in zip(keys, weights, strict=True)
        if 0 <= key < query and key not in special
    ]
    return max(found, key=lambda link: link[0])[1:] if found else None


def letters(labels: Sequence[Label]) -> dict[str, str]:
    """One character for each label key: the first free letter of its name, ``·`` for unlabelled."""
    chosen = {UNLABELLED: "\u00b7"}
    for label in labels:
        if label["key"] not in chosen:
            name = "".join(char for char in str(label["name"]).upper() if char.isalpha())
            free = (c for c in name + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in chosen.values())
            chosen[label["key"]] = next(free, "?")
    return chosen


def rule(label: Label, head: Head, score_names: Mapping[str, str]) -> str:
    """Why the head has its label, in numbers: ``previous token: 0.83 ≥ 0.5 and ≥ 5 × 0.04``."""
    if label.get("score") is None:
        return f"{label['name']}: no rule matched"
    cell = head["scores"].get(label["score"], {})
    name = inner(score_names.get(label["score"], label["score"]))
    reason = f"{name}: {rounded(cell.get('value'))} \u2265 {label['threshold']:g}"
    if label.get("times_null") and cell.get("null") is not None:
        reason += f" and \u2265 {label['times_null']:g} \u00d7 {rounded(cell['null'])}"
    if label.get("rows") and cell.get("rows") is not None:
        reason += f", in {cell['rows']:,} \u2265 {label['rows']} rows"
    return reason


def general_rule(label: Label, score_names: Mapping[str, str]) -> str:
    """The rule of a label without a head: ``previous token ≥ 0.5 and ≥ 5 × uniform``."""
    if label.get("score") is None:
        return "no rule matched"
    name = inner(score_names.get(label["score"], label["score"]))
    reason = f"{name} \u2265 {label['threshold']:g}"
    if label.get("times_null"):
        reason += f" and \u2265 {label['times_null']:g} \u00d7 uniform"
    if label.get("rows"):
        reason += f", in \u2265 {label['rows']} rows with a possible match"
    return reason


def no_rule(labels: Sequence[Label]) -> str:
    """What stands beside an unlabelled head; names the labels that this text is too short for."""
    names = [str(label["name"]) for label in labels if not label.get("reachable", True)]
    if not names:
        return "No rule of the table below matched."
    return f"No rule of the table below matched; on this text {series(names)} cannot be reached."


def in_rows(cell: Cell, n_tokens: int) -> str:
    """``in 2 of 16 rows`` for a score that is a mean over the rows with a possible match, else nothing."""
    if cell.get("share") is None or cell.get("rows") is None:
        return ""
    return f"in {cell['rows']:,} of {counted(n_tokens, 'row')}"


def span(score: Score, n_tokens: int) -> tuple[float, str]:
    """The largest value that the score can take on `n_tokens` tokens, and its range in words."""
    if score.get("range") is not None:
        low, high = score["range"]
        return (1.0 if high is None else high), (
            f"{low:g} and more" if high is None else f"{_plus(low)} to {high:g}"
        )
    if score["unit"] == "keys":
        return float(max(n_tokens, 1)), f"1 to {counted(max(n_tokens, 1), 'key')}"
    if score["unit"] == "nats":
        top = math.log(max(n_tokens, 1))
        return top, f"0 to {rounded(top)} nats (ln {n_tokens})"
    if score["unit"] == "tokens":
        return float(max(n_tokens - 1, 0)), f"0 to {counted(max(n_tokens - 1, 0), 'token')}"
    return 1.0, "0 to 1"


def _plus(value: float | None) -> str:
    return "\u2212\u221e" if value is None else f"{value:g}".replace("-", "\u2212")


def self_test(check: Mapping[str, Any] | None) -> str:
    """What the self-test at attach time found, in a sentence or two."""
    if not check or check.get("max_abs_difference") is None:
        return "Self-test: not run."
    delta, leak = check["max_abs_difference"], check.get("causal_leak")
    moved = f"move by at most {delta:.2g} (max |\u0394|)"
    found = moved if delta else "are exactly the same (max |\u0394| = 0)"
    tokens = check["tokens"]  # 0 where the input is no text, such as an image: then all of it is the probe
    tested = f"Self-test on {counted(tokens, 'token') if tokens else 'the whole input'}"
    result = f"{tested}: with headwise attached the model\u2019s outputs {found}."
    if leak is None:
        return result
    if leak == 0:
        return f"{result} Changing a later token changed no earlier output."
    return f"{result} Changing a later token moved an earlier output by up to {leak:.2g}: it must not."


def subject(report: Report) -> str:
    """``6 layers × 12 heads, 24 tokens of the built-in example``."""
    model, source = report["model"], report["text"].get("source")
    heads = f"{counted(model['layers'], 'layer')} \u00d7 {counted(model['heads'], 'head')}"
    origin = _ORIGINS.get(source, f" from {source}" if source else "")
    return visible(f"{heads}, {counted(report['text']['n_tokens'], 'token')}{origin}")


def texts(report: Report) -> dict[str, tuple[list[str], set[int]]]:
    """Name of a sequence -> its tokens as they can be shown, and its special positions."""
    return {
        sequence["name"]: ([visible(token) for token in sequence["tokens"]], set(sequence["special"]))
        for sequence in report["sequences"]
    }


def head_table(report: Report) -> dict[tuple[int, int], Head]:
    """(layer, head) -> the head's part of the report, in reading order."""
    return {(layer["layer"], head["head"]): head for layer in report["layers"] for head in layer["heads"]}
