"""What all terminal views share: where they are printed, and their cells in columns."""

import io

from rich.cells import cell_len
from rich.console import Console, RenderableType


def print_view(view: RenderableType) -> None:
    """Print the view on standard output, as wide as the terminal is."""
    Console().print(view)


def as_string(view: RenderableType, width: int = 80, color: bool = False) -> str:
    """What rich would print of the view in `width` columns, whatever the surroundings; ANSI where asked."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    console.print(view)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n")).rstrip("\n")


def filled(text: str, width: int, right: bool = False) -> str:
    """The text in `width` cells, at their left or their right end."""
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces
