"""What a cost holds: plain frozen data, versioned, JSON both ways; ``headwise.render`` draws it."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from headwise.costs.quantities import Quantity
from headwise.costs.sizes import Layer, Work
from headwise.plain.stored import built, opened, parsed, refuse

SCHEMA = "headwise.cost"
VERSION = 1


@dataclass(frozen=True)
class LayerCost:
    """The quantities of one layer, and how many layers are like it.

    Attributes:
        letter: stands for one such layer in the formulas of sums over kinds ("k1").
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
            HeadwiseError: another schema, a newer version, or a field that is missing or unsound.
        """
        cost = built(cls, opened(data, "cost", SCHEMA, VERSION), "cost")
        _sound(cost)
        return cost

    def to_html(self) -> str:
        """One offline HTML page."""
        from headwise.render.costs.page import render_cost

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
        return cls.from_dict(parsed(text, "cost"))

    def __str__(self) -> str:
        from headwise.render.costs.text import to_text

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


def _sound(cost: Cost) -> None:
    """What the types of the fields do not say.

    Raises:
        HeadwiseError: no layer, a count or value that is none, or lengths that are not all there.
    """
    if not cost.layers:
        raise refuse("cost", "layers", "at least one kind of layer", [])
    works = [("work", cost.work)]
    for i, kind in enumerate(cost.layers):
        if kind.count < 1:
            raise refuse("cost", f"layers[{i}].count", "a whole number >= 1", kind.count)
        built(Layer, kind.sizes, "cost", f"layers[{i}].sizes")
        works.append((f"layers[{i}].work", kind.work))
    for place, work in works:
        if (work is None) != (cost.work is None):
            raise refuse("cost", place, "lengths for every kind of layer, or for none", work)
        if work is not None:
            built(Work, work, "cost", place)
    for quantity in (*cost.totals, *(quantity for kind in cost.layers for quantity in kind.quantities)):
        if quantity.value < 0:
            raise refuse("cost", quantity.key, "a number >= 0", quantity.value)
    keys = [quantity.key for quantity in cost.totals]
    if "parameters.total" not in keys:
        raise refuse("cost", "totals", "parameters.total among them", keys)
