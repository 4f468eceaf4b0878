"""What the terminal and the page say of a cost and of a head sweep, in the same words."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headwise.plain.numbers import count, power, size
from headwise.plain.stored import plain_data
from headwise.plain.words import counted, visible

Data = Mapping[str, Any]
SWEEP = ("h", "d_k", "matrix products", "scores, values", "exponentials", "softmax")
GROUPS = {
    "parameters": "Parameters",
    "pairs": "Query-key pairs of one head",
    "flops": "Forward pass",
    "backward": "Backward pass",
    "bytes": "Bytes read and written, forward",
    "intensity": "Arithmetic intensity",
    "cache": "Key/value cache",
    "activations": "Activations of attention",
}
_UNLESS_ZERO = ("flops.biases", "backward.biases")


def checked(data: Data, schema: str) -> Data:
    """The data itself, or `ValueError` when it is not of that schema in a version that can be drawn."""
    return plain_data(data, schema, 1)


def lengths(work: Data) -> str:
    """``batch 1 · 4,096 new tokens · 4,096 keys · 2 bytes a number``."""
    parts = [
        f"batch {count(work['batch'])}",
        counted(work["n_q"], "new token"),
        counted(work["n_k"], "key"),
    ]
    if work["cached"]:
        parts[-1] += f", {count(work['cached'])} of them cached"
    parts.append(f"{work['dtype_bytes']:g} bytes a number")
    if work["cache_bytes"] != work["dtype_bytes"]:
        parts.append(f"{work['cache_bytes']:g} in the cache")
    return " · ".join(parts)


def stack(cost: Data) -> str:
    """What the numbers are for: ``one layer`` or ``12 layers``."""
    layers = sum(kind["count"] for kind in cost["layers"])
    return "one layer" if layers == 1 else f"all {layers} layers (L = {layers})"


def groups(cost: Data) -> Iterator[tuple[str, list[Data]]]:
    """Title and quantities of every group; quantities without a sum are those of the first kind of layer."""
    totals = {quantity["key"]: quantity for quantity in cost["totals"]}
    order = [quantity["key"] for quantity in cost["layers"][0]["quantities"]]
    order += [key for key in totals if key not in order]
    single = {quantity["key"]: quantity for quantity in cost["layers"][0]["quantities"]}
    one_kind = len(cost["layers"]) == 1
    for prefix, title in GROUPS.items():
        keys = [key for key in order if key.partition(".")[0] == prefix]
        found = [totals[key] if key in totals else single[key] for key in keys if key in totals or one_kind]
        found = [quantity for quantity in found if quantity["value"] or quantity["key"] not in _UNLESS_ZERO]
        if found:
            yield title, found


def value(quantity: Data) -> str:
    """The number, with thousands apart."""
    return count(quantity["value"])


def short(quantity: Data) -> str:
    """A large number in words, "" for a small one."""
    if quantity["unit"] == "bytes":
        return size(quantity["value"]) if quantity["value"] >= 1024 else ""
    return power(quantity["value"]) if quantity["value"] >= 1e6 else ""


def kind_names(cost: Data) -> list[str]:
    """``k1 = full attention``, one line per kind of layer; the letters stand in formulas."""
    return [f"{kind['letter']} = {visible(kind['name'])}" for kind in cost["layers"]]


def sweep_title(sweep: Data) -> str:
    return f"Heads from 1 to d_model = {count(sweep['d_model'])}"


def sweep_lengths(sweep: Data) -> str:
    """``batch 1 \u00b7 1,024 tokens \u00b7 causal``."""
    parts = [f"batch {count(sweep['batch'])}", counted(sweep["seq"], "token")]
    return " \u00b7 ".join(parts + (["causal"] if sweep["causal"] else []))


def sweep_cells(row: Data, written: Callable[[float], str]) -> list[str]:
    """The cells of one row, under the names of `SWEEP`."""
    large = [written(row[name]) for name in ("matmul", "scores", "exponentials")]
    return [count(row["heads"]), count(row["head_dim"]), *large, f"{row['softmax_share']:.1%}"]
