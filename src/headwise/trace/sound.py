"""Can a trace that came from outside be read and drawn? What the types of its fields do not say."""

from typing import TYPE_CHECKING, Any

from headwise.plain.stored import is_finite, refuse

if TYPE_CHECKING:
    from headwise.trace.data import Trace, TraceArray

AXES = ("head", "query", "key", "column")


def sound(trace: "Trace") -> None:
    """Check sizes, names, arrays, checks and the comparison against each other.

    Raises:
        HeadwiseError: the first thing that does not fit.
    """
    for size in ("n_q", "n_k", "h", "h_kv"):
        if trace.sizes.get(size, 0) < 1:
            raise refuse("trace", f"sizes.{size}", "a whole number >= 1", trace.sizes.get(size))
    lengths = {"query": trace.sizes["n_q"], "key": trace.sizes["n_k"]}
    for place, names, axis in (("queries", trace.queries, "query"), ("keys", trace.keys, "key")):
        if len(names) != lengths[axis]:
            raise refuse("trace", place, f"{lengths[axis]} names", names)
    for name, option in trace.options.items():
        if not (option is None or isinstance(option, bool | str) or is_finite(option)):
            raise refuse("trace", f"options.{name}", "a word, a number, true, false or null", option)
    for i, step in enumerate(trace.steps):
        for j, array in enumerate(step.arrays):
            _array(array, lengths, f"steps[{i}].arrays[{j}]")
        for j, fact in enumerate(step.facts):
            if not (isinstance(fact.value, str) or is_finite(fact.value)):
                raise refuse("trace", f"steps[{i}].facts[{j}].value", "a word or a number", fact.value)
        for j, check in enumerate(step.checks):
            if check.holds != (check.error <= check.tolerance):
                raise refuse("trace", f"steps[{i}].checks[{j}].holds", "error <= tolerance", check.holds)
    compared = trace.compared
    if set(compared) != {"function", "max_abs_difference", "tolerance", "why"}:
        raise refuse("trace", "compared", "function, max_abs_difference, tolerance and why", compared)
    for name, value in compared.items():
        fits = isinstance(value, str) if name in ("function", "why") else is_finite(value)
        if not fits:
            raise refuse("trace", f"compared.{name}", "a word, or a number of a size or difference", value)
    if not trace.steps or not trace.steps[-1].arrays:
        raise refuse("trace", "steps", "a last step that holds the output", trace.steps[-1:])
    if not all(map(is_finite, _leaves(trace.output, trace.steps[-1].arrays[-1].shape, "output"))):
        raise refuse("trace", "output", "finite numbers", trace.output)


def _array(array: "TraceArray", lengths: dict[str, int], place: str) -> None:
    shape, axes = array.shape, array.axes
    if not len(shape) == len(axes) == len(array.letters) or not all(axis in AXES for axis in axes):
        expected = f"one of {', '.join(AXES)} for every size of the shape"
        raise refuse("trace", f"{place}.axes", expected, axes)
    if not 1 <= len(shape) - (axes[:1] == ["head"]) <= 2 or "head" in axes[1:]:
        raise refuse("trace", f"{place}.axes", "one or two axes behind the heads", axes)
    for axis, size in zip(axes, shape, strict=True):
        if size < 1 or size != lengths.get(axis, size):
            raise refuse("trace", f"{place}.shape", f"{lengths.get(axis, '1 or more')} along {axis}", shape)
    if array.values is None:
        return
    leaves = list(_leaves(array.values, shape, f"{place}.values"))
    if not (all(type(leaf) is bool for leaf in leaves) or all(v is None or is_finite(v) for v in leaves)):
        raise refuse("trace", f"{place}.values", "finite numbers and null, or truth values", array.values)


def _leaves(values: Any, shape: list[int], place: str) -> Any:
    """What stands in nested lists of that shape."""
    if not shape:
        yield values
        return
    if not isinstance(values, list) or len(values) != shape[0]:
        raise refuse("trace", place, f"nested lists of shape {shape}", values)
    for part in values:
        yield from _leaves(part, shape[1:], place)
