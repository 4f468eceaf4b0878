"""The errors of headwise: one base class and three children.

Every message has the same four parts: the argument, what was expected, what was received, and a hint that
repairs the call. The base class is a ``ValueError`` and is raised itself for a bad option value, so
``except ValueError`` catches everything.
"""


class HeadwiseError(ValueError):
    """A call that headwise refuses.

    Attributes:
        argument: name of the argument that is wrong.
        expected: what the function takes there.
        received: what the caller gave.
        hint: what to write instead ("" where nothing more can be said).
    """

    def __init__(self, argument: str, expected: str, received: str, hint: str = "") -> None:
        self.argument = argument
        self.expected = expected
        self.received = received
        self.hint = hint

    # Composed here, because torch's compiler cannot follow a call of ValueError.__init__.
    def __str__(self) -> str:
        message = f"{self.argument}: expected {self.expected}; received {self.received}."
        return f"{message} Hint: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.argument, self.expected, self.received, self.hint)


class ShapeError(HeadwiseError):
    """Sizes or ranks that do not fit together."""


class DtypeError(HeadwiseError):
    """A dtype, device or kind of array that is not taken; nothing is cast in silence."""


class CapabilityError(HeadwiseError):
    """Something that this installation, implementation or release does not serve."""
