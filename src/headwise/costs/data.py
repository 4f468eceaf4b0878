"""What a cost holds: plain frozen data, versioned, JSON both ways; ``headwise.render`` draws it."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from headwise.costs.quantities import Quantity
from headwise.errors import HeadwiseError

SCHEMA = "headwise.cost"
VERSION = 1


@dataclass(frozen=True)
class LayerCost:
    """The quantities of one layer, and how many layers are like it.

    Attributes:
        letter: stands for one such layer in the formulas of sums over kinds ("A").
        name: what these layers are ("attention", "windowed attention", a module's name).
        count: how many there are.
        sizes: their sizes.
        work: the lengths that they run on, as in :class:`Cost`.
        quantities: of ONE layer.
    """

    letter: str
    name: str
    count: int
    sizes: dict[str, Any]
    work: dict[str, Any] | None
    quantities: tuple[Quantity, ...]

    def __getitem__(self, key: str) -> int | float:
        return _value(self.quantities, key)


@dataclass(frozen=True)
class Cost:
    """Parameters, operations, bytes and caches of the attention of a model, as numbers with their formulas.

    ``str(cost)`` is a table; ``cost["flops.scores"]`` a number of the whole stack of layers; ``cost.layers[0]
    ["flops.scores"]`` of one layer. Attention only: embeddings, feed-forward layers and the norms between
    layers are not counted.

    Attributes:
        headwise: version that made it.
        title: what was counted.
        work: batch, n_q, n_k, cached, offset, dtype_bytes, cache_bytes; None where no length was given. Of a
            model with two sequences, the lengths of the first kind of layer.
        layers: the kinds of layers.
        totals: quantities of the whole stack.
        notes: plain sentences.
    """

    headwise: str
    title: str
    work: dict[str, Any] | None
    layers: tuple[LayerCost, ...]
    totals: tuple[Quantity, ...]
    notes: list[str]

    def __getitem__(self, key: str) -> int | float:
        return _value(self.totals, key)

    @property
    def parameters(self) -> int:
        """Parameters of all layers, biases included."""
        return int(self["parameters.total"])

    @property
    def flops(self) -> int:
        """FLOPs of the matrix products of one forward pass (a multiply-add is 2), the field's usual
        number."""
        return int(self["flops.matmul"])

    @property
    def kv_bytes_per_token(self) -> int | float:
        """Bytes that one more token adds to the key/value caches of all layers."""
        return self["cache.token"]

    def to_dict(self) -> dict[str, Any]:
        """The cost with its schema and version, as JSON would hold it (a copy)."""
        data = asdict(self)
        for layer in data["layers"]:
            layer["quantities"] = list(layer["quantities"])
        data["layers"], data["totals"] = list(data["layers"]), list(data["totals"])
        return json.loads(json.dumps({"schema": SCHEMA, "version": VERSION, **data}))

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The cost that ``to_dict`` gave.

        Raises:
            HeadwiseError: another schema, a newer version, or a field that is missing.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = repr(data.get("schema")) if isinstance(data, dict) else type(data).__name__
            raise HeadwiseError("cost", f"a dict with schema {SCHEMA!r}", found, "pass Cost.to_dict()")
        version = data.get("version")
        if not isinstance(version, int) or not 1 <= version <= VERSION:
            hint = "pip install --upgrade headwise"
            raise HeadwiseError("cost", f"version {VERSION} of {SCHEMA!r}", f"version {version}", hint)
        try:
            layers = tuple(
                LayerCost(**{**kind, "quantities": tuple(Quantity(**q) for q in kind["quantities"])})
                for kind in data["layers"]
            )
            totals = tuple(Quantity(**quantity) for quantity in data["totals"])
            rest = {
                field.name: data[field.name]
                for field in fields(cls)
                if field.name not in ("layers", "totals")
            }
        except (KeyError, TypeError) as error:
            received = f"one without {error}" if isinstance(error, KeyError) else str(error)
            raise HeadwiseError("cost", "every field of a cost", received, "pass Cost.to_dict()") from None
        return cls(**rest, layers=layers, totals=totals)

    def to_html(self) -> str:
        """One offline HTML page."""
        from headwise.render.costs_html import render_cost

        return render_cost(self.to_dict())

    def to_json(self) -> str:
        """The cost as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The cost that ``to_json`` gave.

        Raises:
            HeadwiseError: not JSON, or not a cost.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise HeadwiseError("cost", "JSON text", f"text that is not JSON ({error})") from None
        return cls.from_dict(data)

    def __str__(self) -> str:
        from headwise.render.costs_text import to_text

        return to_text(self.to_dict())

    def __repr__(self) -> str:
        return f"<Cost of {self.title}: {self.parameters:,} parameters; print it for every number>"


def _value(quantities: tuple[Quantity, ...], key: str) -> int | float:
    for quantity in quantities:
        if quantity.key == key:
            return quantity.value
    there = ", ".join(quantity.key for quantity in quantities)
    hint = (
        ""
        if any(quantity.key.startswith("flops") for quantity in quantities)
        else " (seq=... adds FLOPs and bytes)"
    )
    raise KeyError(f"no quantity {key!r}; there are: {there}{hint}")
