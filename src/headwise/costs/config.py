"""Reading a Hugging Face ``config.json``: the sizes of its attention, or a refusal that names the field.

Nothing is guessed. A family that is not in the table is refused, and so is a field that the table does not
know: it might change the attention. Where a class of transformers has a default that a file may leave out,
the field has to be there, unless the default follows from the other sizes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.costs.config_forms import Fields, Kinds
from headwise.costs.families import ELSEWHERE, FAMILIES
from headwise.costs.sizes import sizes_in_words
from headwise.errors import CapabilityError, HeadwiseError
from headwise.plain.values import shown
from headwise.plain.words import counted

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True)
class Config:
    """What a config says about attention."""

    name: str
    title: str
    causal: bool
    layers: Kinds
    dtype_bytes: float | None
    notes: list[str]


def read_config(source: Any, ignore: tuple[str, ...] = ()) -> Config:
    """The attention of a config.

    Args:
        source: a dict, the path of a ``config.json``, or a folder that holds one.
        ignore: further fields that say nothing about attention.

    Raises:
        HeadwiseError: not such a file, a field that is missing, or one that is unknown.
        CapabilityError: a family, or an option of it, that is not counted.
    """
    data = _load(source)
    kind = data.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        hint = "give the sizes yourself: cost(d_model=..., heads=..., kv_heads=..., head_dim=..., layers=...)"
        received = "no model_type" if kind is None else f"model_type {shown(kind)}"
        raise CapabilityError("config", f"one of the families {known}", received, hint)
    missing = [name for name in family.required if name not in data]
    if missing:
        hint = "transformers would fill in a default of its class; add the value to the file or the dict"
        raise HeadwiseError("config", f"the field {missing[0]}", f"a {kind} config without it", hint)
    for name, allowed in family.fixed.items():
        if name in data and data[name] not in allowed:
            raise CapabilityError(
                "config", f"{name} = {allowed[0]}", f"{name} = {shown(data[name])}", "give sizes instead"
            )
    fields = Fields(data)
    layers = family.read(fields)
    known_fields = fields.read | family.elsewhere | ELSEWHERE | set(family.fixed) | set(ignore)
    unknown = [name for name in data if name not in known_fields]
    if unknown:
        hint = f"if it leaves the sizes of attention alone: ignore={tuple(unknown)!r}"
        raise HeadwiseError(
            "config", f"fields of {kind} that headwise knows", f"unknown {', '.join(unknown)}", hint
        )
    first = next(kind.layer for kind in layers if kind.part == "self")
    count = sum(kind.count for kind in layers)
    name = str(data.get("_name_or_path") or kind)
    title = f"{name}: {counted(count, 'attention layer')}, {sizes_in_words(first)}"
    return Config(name, title, first.causal, layers, _dtype_bytes(data), _notes(data, layers))


def _load(source: Any) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise HeadwiseError(
            "config", "a config.json that can be read", f"{path} ({error.strerror})"
        ) from None
    except RecursionError:
        raise HeadwiseError("config", "a JSON file", f"{path} (nested too deeply)") from None
    except ValueError as error:  # no JSON, no UTF-8, or a whole number of too many digits
        raise HeadwiseError("config", "a JSON file", f"{path} ({error})") from None
    if not isinstance(data, dict):
        raise HeadwiseError("config", "a JSON object of fields", f"{path}, a {type(data).__name__}")
    return data


def _dtype_bytes(data: Mapping[str, Any]) -> float | None:
    dtype = data.get("dtype", data.get("torch_dtype"))
    return None if dtype is None else _BYTES.get(str(dtype).removeprefix("torch."))


def _notes(data: Mapping[str, Any], layers: Kinds) -> list[str]:
    notes = []
    if data.get("quantization_config"):
        notes.append(
            "The config quantizes its weights; bytes are counted for numbers of the size stated above."
        )
    if any(kind.layer.latent for kind in layers):
        notes.append(
            "Latent attention, counted as written: every key and value is made from its latent. Folding that "
            "projection into the queries is not counted."
        )
    return notes
