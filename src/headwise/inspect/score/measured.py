"""One call as the scores see it: its statistics, what its rows see, and a sample of its rows.

The same scores measure the call and its uniform twin; ``uniform`` says which of the two this is.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from headwise.compute.request import Aux
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import Rows, plain
from headwise.inspect.call.text import Text
from headwise.inspect.score.tally import OFFSETS
from headwise.plain.types import Array, Booleans, Floats


@dataclass(frozen=True, eq=False)
class Visible:
    """What the rows of a call see, from its uniform attention; (1, …), or (H, …) where heads differ.

    Attributes:
        keys: (h, n_q) number of visible keys.
        rows: (h, n_q) True where there is one.
        offsets: (h, n_q, 17) whether the key at each of OFFSETS is seen; None in cross-attention.
        members: name of a class of keys -> (h,) how many of its keys all rows together see.
    """

    keys: Floats
    rows: Booleans
    offsets: Booleans | None
    members: dict[str, Floats]


def visible_of(uniform: Aux, of_keys: Text) -> Visible:
    """Read the visibility off the statistics of a call's ``uniform()``."""
    largest = rows_of(uniform.max_weight)
    rows = np.isfinite(largest)
    keys = np.where(rows, np.rint(1 / np.where(rows, largest, 1.0)), 0.0)
    seen = None
    if uniform.relative is not None:
        asked = rows_of(uniform.relative) > 0
        seen = np.pad(asked, ((0, 0), (0, 0), (0, len(OFFSETS) - asked.shape[-1])))
    classes = rows_of(uniform.classes)
    members = {
        name: np.rint(np.where(rows, _mass(classes, of_keys, name) * keys, 0.0).sum(axis=1))
        for name in of_keys.patterns[1]
    }
    return Visible(keys, rows, seen, members)


@dataclass(eq=False, kw_only=True)
class Measured:
    """A call over one sequence (B = 1) after its pass of the kernel.

    Attributes:
        call: what was attended; queries: the tokens of its rows; keys: those of its keys.
        aux: its statistics.
        visible: what its rows see.
        sample: the rows that are asked what is too dear for every row.
        uniform: whether this is the uniform twin.
        equal: options of the sample under uniform attention, where that looks at the call's own values.
    """

    call: AttentionCall
    queries: Text
    keys: Text
    aux: Aux
    visible: Visible
    sample: Rows
    uniform: bool = False
    equal: dict[str, Any] | None = None
    _rows: dict[str, Floats] = field(default_factory=dict)

    def row(self, name: str) -> Floats:
        """(H, n_q, …): a statistic of every row, in float64."""
        if name not in self._rows:
            self._rows[name] = rows_of(getattr(self.aux, name))
        return self._rows[name]

    def mass(self, name: str) -> Floats:
        """(H, n_q): the mass of each row on one class of keys."""
        return _mass(self.row("classes"), self.keys, name)

    @property
    def heads(self) -> int:
        return int(np.shape(self.aux.max_weight)[1])

    @cached_property
    def of(self) -> Booleans:
        """(1, n_q) or (H, n_q): the rows that see a key."""
        return self.visible.rows if len(self.visible.rows) == 1 else np.isfinite(self.row("max_weight"))

    @cached_property
    def sample_of(self) -> Booleans:
        """(1, r) or (H, r): the rows of the sample that see a key."""
        return self.visible.rows[:, self.sample.at]

    @cached_property
    def sample_lse(self) -> Floats:
        """(H, r): log-sum-exp of the rows of the sample."""
        return self.row("lse")[:, self.sample.at]

    @cached_property
    def sample_special(self) -> Booleans:
        """(r,): the rows of the sample that are special tokens."""
        return self.queries.is_special[self.sample.at]

    @property
    def only_first_is_special(self) -> bool:
        return bool(self.keys.is_special[0]) and int(self.keys.is_special.sum()) == 1

    @property
    def values(self) -> Array:
        """(H_kv, n_k, d_v)."""
        return plain(self.call.value)[0]

    def as_uniform(self, equal: dict[str, Any]) -> "Measured":
        """The same call under uniform attention; ``equal``: the options of its sample there."""
        return replace(self, uniform=True, equal=equal)

    @cached_property
    def attended(self) -> tuple[Floats, Floats]:
        """(H, r) twice: where the keys stand on average that a row attends to, from the middle of all keys,
        and their standard deviation. In float64: one token among thousands would drown in float32."""
        call = self.sample.call
        options = dict(call.options)
        for name in ("attn_mask", "attn_bias"):
            if options.get(name) is not None and options[name].dtype != np.bool_:
                options[name] = options[name].astype(np.float64)
        wide = self.sample.changed(
            query=call.query.astype(np.float64),
            key=np.broadcast_to(call.key[:1].astype(np.float64), call.key.shape),
            options=options,
        )
        at = np.arange(self.sample.n_k) - (self.sample.n_k - 1) / 2
        output, _ = wide.attend(np.stack([at, at**2, np.ones_like(at)], axis=-1)[None])
        mass = np.where(output[..., 2] > 0, output[..., 2], np.nan)  # 1 but for sink logits
        mean, square = output[..., 0] / mass, output[..., 1] / mass
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    @cached_property
    def off_first(self) -> "OffFirst":
        """The rows of the sample once more, with the first key out of sight."""
        asked = {
            "lse": True,
            "distance": True,
            "max_weight": self.only_first_is_special,
            "sink_logit_mass": self.call.options.get("sinks") is not None,
        }
        hide = np.arange(self.sample.n_k) == 0
        if self.call.value is None:
            found, sizes, blended = self.sample.statistics(hide, **asked), None, None
        else:
            sizes = np.linalg.norm(self.values, axis=-1, keepdims=True)
            output, found = self.sample.attend(sizes, hide, **asked)
            blended = output[..., 0]
        return OffFirst(found, left(found["lse"], self.sample_lse), sizes, blended)


@dataclass(frozen=True, eq=False)
class OffFirst:
    """Rows with the first key hidden: statistics (H, r), which part of the softmax denominator is left, and,
    with values, their norms (H_kv, n_k, 1) and the weighted mean of these (H, r)."""

    found: dict[str, Floats]
    rest: Floats
    sizes: Floats | None
    blended: Floats | None


def left(hidden: Floats, whole: Floats) -> Floats:
    """The part of the softmax denominator that is left with some keys hidden; 0 in rows that see nothing."""
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(hidden == -np.inf, 0.0, np.exp(hidden - whole))
    return found


def _mass(classes: Floats, keys: Text, name: str) -> Floats:
    """A class is a union of the patterns that the kernel was asked for."""
    mass: Floats = classes[..., list(keys.patterns[1][name])].sum(axis=-1)
    return mass


def rows_of(values: Any) -> Floats:
    """(1, H, …) of any kind -> (H, …) in float64."""
    return np.asarray(values, dtype=np.float64)[0]
