"""Data from outside: read back as it was written, or refused with one message; never a raw error."""

import copy
import json
import random
from dataclasses import dataclass

import pytest

from headwise.costs import cost
from headwise.costs.data import Cost
from headwise.costs.sweep import Sweep, head_sweep
from headwise.errors import HeadwiseError
from headwise.plain.stored import built, parsed
from headwise.trace import explain
from headwise.trace.data import Trace
from headwise.trace.examples import example

GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 2}
GEMMA = {"model_type": "gemma2", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
GEMMA |= {"head_dim": 4, "num_hidden_layers": 3, "sliding_window": 2}
WRITTEN = {
    "block": (Trace, example("3.3")),
    "causal": (Trace, explain(scores=[[1, 2], [3, 4]], value=[[1], [2]], is_causal=True, tokens=["a", "b"])),
    "huge": (Trace, explain(scores=[[1e308, -1e308]], value=[[1], [2]])),
    "cost": (Cost, cost(GPT2, seq=3)),
    "kinds": (Cost, cost(GEMMA, seq=1, cached=5)),
    "no length": (Cost, cost(d_model=8, heads=2)),
    "sweep": (Sweep, head_sweep(6, 4)),
}
HOSTILE = (None, True, -1, 0, 3, 10**400, 1.5, -2.5, float("nan"), float("inf"), "", "x", [], [1, 2], [[]])
HOSTILE += ([None], {}, {"a": 1}, {1: 2}, (), b"x", object())


@pytest.mark.parametrize("name", WRITTEN)
def test_it_comes_back_as_it_was(name):
    kind, written = WRITTEN[name]
    assert kind.from_dict(written.to_dict()) == written == kind.from_json(written.to_json())


def places(data, path=()):
    """The way to everything inside."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(data, rng):
    """A copy with one thing in it replaced, left out, doubled or added."""
    data = copy.deepcopy(data)
    *path, last = rng.choice(list(places(data)))
    holder = data
    for key in path:
        holder = holder[key]
    way = rng.randrange(4)
    if way == 0:
        del holder[last]
    elif way == 1 and isinstance(holder, list):
        holder.append(holder[last])
    elif way == 2 and isinstance(holder, dict):
        holder["novel"] = rng.choice(HOSTILE)
    else:
        holder[last] = rng.choice(HOSTILE)
    return data


@pytest.mark.parametrize("name", WRITTEN)
def test_whatever_is_read_can_be_drawn_and_the_rest_is_refused(name):
    kind, written = WRITTEN[name]
    data, rng, refused = written.to_dict(), random.Random(name), 0
    for _ in range(150):
        try:
            found = kind.from_dict(changed(data, rng))
        except HeadwiseError as error:
            assert len(str(error)) < 400 and str(error).startswith(kind.__name__.lower())
            refused += 1
            continue
        assert kind.from_json(found.to_json()) == found
        views = [str, repr, kind.to_html] + ([Trace.to_markdown] if kind is Trace else [])
        assert all(view(found) for view in views)
        if kind is Trace:
            arrays = [array for step in found.steps for array in step.arrays if array.values is not None]
            assert all(list(array.numpy().shape) == array.shape for array in arrays)
    assert 40 < refused < 150


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "NaN",
        '{"schema": Infinity}',
        "9" * 5000,
        b"\xff\xfe\x00",
        None,
        3,
        "null",
        "[1]",
    ],
)
@pytest.mark.parametrize("kind", [Trace, Cost, Sweep])
def test_text_that_is_none_of_ours(kind, text):
    with pytest.raises(HeadwiseError, match=f"^{kind.__name__.lower()}: expected "):
        kind.from_json(text)


@dataclass(frozen=True)
class Inner:
    size: int
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: str
    parts: tuple[Inner, ...]
    sizes: dict[str, int]
    last: Inner | None = None
    number: int | float = 0


def test_every_type_is_built():
    data = {
        "name": "x",
        "parts": [{"size": 1}, {"size": 2, "share": 1}],
        "sizes": {"n": 3},
        "last": {"size": 4},
    }
    made = Outer("x", (Inner(1), Inner(2, 1)), {"n": 3}, Inner(4))
    assert built(Outer, data, "thing") == made
    assert built(Outer, {**data, "last": None, "number": 1.5}, "thing") == Outer(
        "x", made.parts, {"n": 3}, None, 1.5
    )


GOOD = {"name": "x", "parts": [{"size": 1}], "sizes": {}}
BAD = {
    "no dict": ([], "thing: expected an object of fields; received []."),
    "missing": (
        {"name": "x"},
        "thing: expected every field of a thing, and no other; received one without 'parts'.",
    ),
    "missing inside": (
        {**GOOD, "parts": [{"size": 1}, {}]},
        "thing: expected every field of a thing at parts[1], and no other; received one without 'size'.",
    ),
    "unknown": (
        {**GOOD, "novel": 1},
        "thing: expected every field of a thing, and no other; received one with 'novel'.",
    ),
    "text": ({**GOOD, "name": 3}, "thing: expected name: text; received 3."),
    "truth as a number": (
        {**GOOD, "parts": [{"size": True}]},
        "thing: expected parts[0].size: a whole number; received True.",
    ),
    "no finite number": (
        {**GOOD, "parts": [{"size": 1, "share": float("nan")}]},
        "thing: expected parts[0].share: a finite number; received nan.",
    ),
    "list": ({**GOOD, "parts": {"size": 1}}, "thing: expected parts: a list; received {'size': 1}."),
    "dict": ({**GOOD, "sizes": [1, 2]}, "thing: expected sizes: an object of fields; received [1, 2]."),
    "key": ({**GOOD, "sizes": {1: 2}}, "thing: expected sizes: an object of fields; received {1: 2}."),
    "either": (
        {**GOOD, "number": "x"},
        "thing: expected number: a whole number or a finite number; received 'x'.",
    ),
    "or nothing": ({**GOOD, "last": 3}, "thing: expected last: an object of fields; received 3."),
}


@pytest.mark.parametrize("name", BAD)
def test_the_message(name):
    data, message = BAD[name]
    with pytest.raises(HeadwiseError) as error:
        built(Outer, data, "thing")
    assert str(error.value) == f"{message} Hint: pass Thing.to_dict()"


def test_text_is_read_as_json_reads_it():
    assert parsed(json.dumps(GOOD), "thing") == GOOD == parsed(json.dumps(GOOD).encode(), "thing")
    with pytest.raises(
        HeadwiseError, match="thing: expected JSON text; received text that is nested too deeply"
    ):
        parsed("[" * 100_000, "thing")
