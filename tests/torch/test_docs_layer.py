"""docs/layer.md: every name in its tables exists, every feature has a place, and its example runs."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs" / "layer.md").read_text(encoding="utf-8")
PLACES = ("headwise.torch", "headwise")
NAME = re.compile(r"`([A-Za-z_.]+)(?:\(([a-z_, ]+)\))?`")

# The rows of the feature tables that the layer was planned by, in the words that the page has to hold.
FEATURES = """
projections of queries | self- and cross-attention | values of another width | come in with another width
output of another width | grouped and multi-query | causal, both alignments | True = attend | True = ignore
floating bias | key padding | lengths per entry | packed sequences | sliding window | ALiBi | rotary positions
relative bias | soft cap | attention sinks | norms of queries and keys | growing cache | static cache
paged cache | dropout of weights | weights per head | log-sum-exp | statistics of rows | rows without keys
deterministic | float64 | without a batch axis | weights of `nn.MultiheadAttention` | head mask
pruning heads
one bias switch | queries, keys, values and outputs per head | messages | CPU | NumPy | torch.compile
parallel heads | initialisation | hooks | gates | score_mod | raw, capped
"""


def table(title):
    """Rows of the table under a heading, as cells."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


SERVED = table("What other layers do, and where it is here")
NOT_SERVED = table("What it does not do")


def resolve(dotted):
    for place in PLACES:
        found = import_module(place)
        try:
            for part in dotted.split("."):
                found = (
                    getattr(found, part)
                    if hasattr(found, part)
                    else import_module(f"{found.__name__}.{part}")
                )
        except (ImportError, AttributeError):
            continue
        return found
    raise AssertionError(f"{dotted} does not exist")


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row[0])
def test_what_is_served_exists(row):
    assert len(row) == 3 and all(row)
    named = NAME.findall(row[2])
    assert named
    for dotted, arguments in named:
        if dotted == "q_proj":
            continue
        found = resolve(dotted)
        parameters = inspect.signature(found).parameters
        for argument in filter(None, arguments.split(", ")):
            assert argument in parameters, f"{dotted} has no argument {argument}"


def test_every_feature_has_a_place():
    cells = [row[0] for row in SERVED + NOT_SERVED]
    for feature in filter(None, (part.strip() for part in re.split(r"[|\n]", FEATURES))):
        assert any(feature in cell for cell in cells), feature


def test_what_is_not_served_has_a_reason():
    for row in NOT_SERVED:
        assert len(row) == 3 and len(row[2]) > 15, row


def test_this_test_can_fail():
    with pytest.raises(AssertionError, match="does not exist"):
        resolve("MultiHeadAttention.no_such_method")


def test_the_examples_run():
    told = {}
    for block in PAGE.split("```python\n")[1:]:
        exec(block.split("```")[0], told)
    assert told["y"].shape == (4, 100, 512)
    torch.testing.assert_close(told["layer"](told["x"]).shape, torch.Size([4, 100, 512]))
    torch.testing.assert_close(told["steps"], told["whole"], atol=1e-5, rtol=1e-5)
    ours, theirs, x = told["ours"], told["theirs"], told["x"][:2, :7]
    hidden, added = torch.arange(7) > torch.tensor([[6], [3]]), torch.randn(7, 7)
    grids = torch.rand(2, 7, 7).ge(0.7).logical_and(~torch.eye(7, dtype=torch.bool))
    for here, there in (
        ({}, {}),
        ({"key_mask": ~hidden}, {"key_padding_mask": hidden}),
        ({"attn_mask": ~grids[0]}, {"attn_mask": grids[0]}),
        ({"attn_mask": ~grids[:, None]}, {"attn_mask": grids.repeat_interleave(8, 0)}),
        ({"attn_bias": added}, {"attn_mask": added}),
        ({"is_causal": True}, {"attn_mask": torch.ones(7, 7, dtype=torch.bool).triu(1)}),
    ):
        expected, weights = theirs(x, x, x, average_attn_weights=False, **there)
        torch.testing.assert_close(ours(x, **here), expected, atol=1e-5, rtol=1e-5)
        found = torch.as_tensor(ours.heads(x, **here).weights()[1])
        torch.testing.assert_close(found, weights[1].detach(), atol=1e-5, rtol=1e-5)
