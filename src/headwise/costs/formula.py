"""Numbers that carry their own formula, so that what is printed beside a number is what computed it."""

from dataclasses import dataclass
from typing import Self

_ATOM, _PRODUCT, _SUM = 0, 1, 2


@dataclass(frozen=True)
class Formula:
    """A value, the formula in letters, and the same formula with its numbers."""

    value: int | float
    letters: str
    numbers: str
    kind: int = _ATOM

    @classmethod
    def of(cls, letters: str, value: int | float, numbers: str | None = None) -> Self:
        """A letter that stands for a number; `numbers` where its value is itself computed."""
        value = int(value) if float(value).is_integer() else value
        return cls(value, letters, f"{value}" if numbers is None else numbers)

    def __mul__(self, other: "Formula | int") -> "Formula":
        other = _formula(other)
        sides = [_inside(side, _PRODUCT) for side in (self, other)]
        letters, numbers = ("·".join(side[i] for side in sides) for i in (0, 1))
        return Formula(self.value * other.value, letters, numbers, _PRODUCT)

    def __rmul__(self, other: int) -> "Formula":
        return _formula(other) * self

    def __add__(self, other: "Formula | int") -> "Formula":
        other = _formula(other)
        if not self.letters or not other.letters:  # nothing() added
            return other if not self.letters else self
        letters, numbers = f"{self.letters} + {other.letters}", f"{self.numbers} + {other.numbers}"
        return Formula(self.value + other.value, letters, numbers, _SUM)


def nothing() -> Formula:
    """The empty sum."""
    return Formula(0, "", "")


def total(formulas: "list[Formula]") -> Formula:
    """Their sum; 0 of none."""
    added = nothing()
    for formula in formulas:
        added = added + formula
    return added if added.letters else Formula.of("0", 0)


def times(*factors: Formula | int) -> Formula:
    """Their product."""
    made: Formula | None = None
    for factor in factors:
        made = _formula(factor) if made is None else made * factor
    assert made is not None
    return made


def _formula(value: Formula | int) -> Formula:
    return value if isinstance(value, Formula) else Formula.of(str(value), value)


def _inside(formula: Formula, kind: int) -> tuple[str, str]:
    if formula.kind > kind:
        return f"({formula.letters})", f"({formula.numbers})"
    return formula.letters, formula.numbers
