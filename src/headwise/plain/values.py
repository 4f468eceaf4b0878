"""What a value is, and how a message shows it."""

from typing import Any

import numpy as np


def is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """How a message shows what it received: an array by its shape, anything long cut."""
    if getattr(value, "shape", ()) != ():
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:  # nested too deeply, a number of too many digits, or a repr of the caller's that fails
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."
