"""Importing headwise brings NumPy and nothing else that has to be installed."""

import subprocess
import sys

import pytest

import headwise

HEAVY = ("torch", "jax", "transformers", "tokenizers", "safetensors", "typer", "click", "rich", "scipy")
PROBE = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"


def heavy_after(statement):
    """Which heavy packages a fresh interpreter holds after ``statement``."""
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{statement}\n{PROBE}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


def test_import_is_light():
    assert heavy_after("import headwise") == "[]"


def test_use_is_light():
    assert heavy_after(
        "import numpy as np, headwise\n"
        "x = np.ones((2, 3, 4))\n"
        "headwise.attention(x, x, x, return_aux=headwise.AuxRequest(entropy=True))\n"
        "str(headwise.plan(x, x, x))\n"
        "try: headwise.attention([1.0], x, x)\n"
        "except headwise.DtypeError: pass"
    ) == "[]"  # fmt: skip


def test_this_test_can_fail():
    assert heavy_after("import headwise, rich") == "['rich']"


def test_lazy_names_are_listed_and_arrive():
    assert set(headwise.__all__) <= set(dir(headwise))
    assert callable(headwise.inspect_heads)
    assert headwise.inspect_heads is headwise.inspect.inspect_heads


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = headwise.no_such_name


def test_public_names():
    assert set(headwise.__all__) == {
        "attention", "multi_head_attention", "AuxRequest", "Aux", "AttentionWeights", "plan",
        "explain", "cost", "inspect_heads", "inspect_qk", "check_attention", "check_layer",
        "HeadwiseError", "ShapeError", "DtypeError",
        "CapabilityError", "__version__",
    }  # fmt: skip
    assert headwise.__version__.count(".") == 2
