"""Words about things of any kind: a number of them, a series of names, a token as it can be shown."""

import unicodedata
from collections.abc import Sequence

_JOINERS = "\u200c\u200d"  # invisible alone, but they shape Persian words and the parts of an emoji


def visible(token: str) -> str:
    """The token as it can be shown: control, direction and unpaired characters become escapes (``\\n``).

    A token of spaces only is shown as ``␣``, an empty one as ``(empty)``. Markup is left alone: a view must
    not read it.
    """
    if not token:
        return "(empty)"
    if all(unicodedata.category(char) == "Zs" for char in token):
        return "\u2423" * len(token)
    kept = "" if all(char in _JOINERS for char in token) else _JOINERS
    return "".join(char if char in kept or not _hidden(char) else _escape(char) for char in token)


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def inner(name: str) -> str:
    """A name as it stands inside a sentence: ``Largest weight`` gets a small letter, ``BOS`` does not."""
    return name[:1].lower() + name[1:] if name[1:2].islower() else name


def sentence(phrase: str) -> str:
    """The phrase with a capital and a full stop: ``Weight on the token itself.``."""
    return phrase[:1].upper() + phrase[1:] + ("" if phrase.endswith((".", "!", "?")) else ".")


def series(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def counted(how_many: int, noun: str) -> str:
    """``1 token``, ``2,000 tokens``."""
    return f"{how_many:,} {noun}" if how_many == 1 else f"{how_many:,} {noun}s"
