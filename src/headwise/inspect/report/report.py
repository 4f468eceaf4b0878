"""The report of an inspection: plain data, versioned, JSON both ways; ``headwise.render`` draws it."""

import html
import json
import math
import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from headwise.errors import HeadwiseError
from headwise.inspect.report import export
from headwise.render.report.schema import SCHEMA, VERSION, read

PAGE_BUDGET = 5_000_000
NUMBERS = frozenset({int, float})
FRAME_HEIGHT = 860  # pixels of the page inside a notebook: all heads and the chosen one beside them


@dataclass(frozen=True, repr=False)
class HeadReport:
    """What every head of a model does with one text.

    All fields are plain lists, dicts, strings, numbers and None (a missing number). Layers, heads and
    positions count from 0. ``str(report)`` is the terminal view, as wide as the terminal (80 columns without
    one), ``to_html()`` the offline page; a notebook shows that page in a frame.

    Attributes:
        headwise: version that made the report.
        model: name, source, architecture, layers, heads, kv_heads, head_dim, causal.
        text: source (where the text came from, or None) and n_tokens.
        tokens: n strings to show; special: positions of the special tokens.
        sequences: every sequence of tokens by name, that of ``tokens`` first; a layer says which one its
            queries and its keys belong to.
        check: the self-test: tokens, max_abs_difference, causal_leak.
        scores: what each score is: key, name, unit, group, meaning, over (the denominator), null (what
            uniform attention gives), higher, source, range.
        labels: the table of thresholds: score, threshold, times_null (times what uniform attention gives),
            rows (query rows that the score must be a mean of) and whether the text is long enough for it.
        layers: per layer its number, name, kind (self or cross), queries and keys (names of sequences) and
            heads. Per head: label; scores (value, null, rows, and where there are two readings all_rows);
            offsets (mass and share of strongest keys at −8 … 8); distances (mean weight at distance 0, 1,
            2–3, 4–7, …); received (the keys that receive most, and those that are sinks); links;
            evidence (the link of an induction head that counts as such); rows (the strongest keys of every
            query, or of those in ``queries``); pooled map.
        telling: the heads that stand out most, best first.
        notes: plain sentences about what was left out.
        pairs: the gold pairs and the heads that find them; None where none were given.
        needle: the needle and the heads that copy it as the model writes; None where none was given.
        sinks: the tokens that are attention sinks in most heads, and in which share of the heads.
        probe: the random-token probe; None where it was not run.
        redundancy: which heads look alike; None where it was not computed.
        rollout: attention rollout between groups of tokens; None where it was not asked for.
    """

    headwise: str
    model: dict[str, Any]
    text: dict[str, Any]
    tokens: list[str]
    special: list[int]
    sequences: list[dict[str, Any]]
    check: dict[str, Any]
    scores: list[dict[str, Any]]
    labels: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    telling: list[dict[str, Any]]
    notes: list[str]
    pairs: dict[str, Any] | None
    needle: dict[str, Any] | None
    sinks: dict[str, Any] | None
    probe: dict[str, Any] | None
    redundancy: dict[str, Any] | None
    rollout: dict[str, Any] | None

    def with_fields(self, **changed: Any) -> Self:
        """The same report with some fields replaced."""
        return replace(self, **changed)

    def to_dict(self) -> dict[str, Any]:
        """A copy as plain data with its schema and version; a number that is not finite is None in it."""
        content = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"schema": SCHEMA, "version": VERSION, **content}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The report that ``to_dict`` gave.

        Raises:
            HeadwiseError: another schema or version, or a part that is missing or no such part.
        """
        content = read(data)
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    def to_json(self) -> str:
        """The report as JSON text. A number that is not finite is written as null."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The report that ``to_json`` gave.

        Raises:
            HeadwiseError: not JSON, or not such a report.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise HeadwiseError("report", "JSON text", f"what is not JSON text ({error})") from error
        return cls.from_dict(data)

    def to_html(self, budget: int = PAGE_BUDGET) -> str:
        """One offline HTML page of at most ``budget`` bytes."""
        from headwise.render.report.page import render_html

        return render_html(self.to_dict(), budget)

    def table(self) -> list[dict[str, Any]]:
        """The score table, one row per head and score: layer, head, kind, label, score, value, null, excess
        (value − null), rows, share and all_rows."""
        return export.score_rows(vars(self))

    def to_csv(self) -> str:
        """The score table as CSV text with a header; missing numbers are empty."""
        return export.to_csv(vars(self))

    def write_parquet(self, path: str | Path) -> None:
        """The score table as a Parquet file.

        Raises:
            CapabilityError: pyarrow is not installed; the message names the command.
        """
        export.write_parquet(vars(self), path)

    def _repr_html_(self) -> str:
        """The page in a frame of its own: it can run its script and reach nothing of the notebook."""
        page = html.escape(self.to_html(), quote=True)
        name = html.escape(repr(self), quote=True)
        style = f"width: 100%; height: {FRAME_HEIGHT}px; border: 0"
        rights = "allow-scripts allow-forms"  # the form is the Close button of the page's list of keys
        return f'<iframe title="{name}" sandbox="{rights}" style="{style}" srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        size = f"{self.model['layers']} layers x {self.model['heads']} heads, {self.text['n_tokens']} tokens"
        return f"HeadReport({self.model['name']}, {size})"

    def __str__(self) -> str:
        from headwise.render.report.text import to_text

        return to_text(self.to_dict(), shutil.get_terminal_size().columns)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if NUMBERS.issuperset(map(type, value)) and all(map(math.isfinite, value)):
            return list(value)  # most of a report are such lists
        return [_plain(item) for item in value]
    return value
