"""What would run, and why: from a problem, this processor and the environment to a printable plan."""

import os
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import headwise._core as _core
from headwise.compute.answers import records
from headwise.compute.arrays import take
from headwise.compute.options import MOST_THREADS
from headwise.compute.problem import Problem, build_problem
from headwise.errors import CapabilityError, HeadwiseError
from headwise.plain.numbers import binary
from headwise.plain.types import AnyArray


class Plan(NamedTuple):
    """How one problem runs; ``print(plan)`` shows it with its reasons.

    Attributes:
        problem: what is computed, every option resolved.
        isa: instruction set, one of the names that this processor can run.
        num_threads: threads that share the work. The result does not depend on it.
    """

    problem: Problem
    isa: str
    num_threads: int

    @property
    def second_pass(self) -> tuple[str, ...]:
        """Requested statistics that read the keys a second time.

        Sums down the columns are sums of final weights. For them the kernel keeps the exponentials of a group
        of rows until the rows are complete; where these would outgrow the cache, it reads the keys again.
        """
        return ("received",) if self._scratch()[2] else ()

    @property
    def lanes(self) -> int:
        """Numbers that one instruction works on."""
        return _tile(self.isa, self.problem.query.dtype)[0]

    @property
    def tile(self) -> tuple[int, int]:
        """Queries and keys of one tile: the piece of the weight matrix that exists at a time."""
        _, queries, keys = _tile(self.isa, self.problem.query.dtype)
        return queries, keys

    @property
    def scratch_bytes(self) -> int:
        """The working memory of all threads, beside the outputs; outputs and inputs are not in it.

        Per thread: the state of the queries of one step (query, output, statistics), one tile of scores, and
        for attention received the exponentials of its rows. Together: what such sums leave until they are
        added up, and copies of keys and values whose rows lie apart.
        """
        of_each_thread, of_all, _ = self._scratch()
        return self.num_threads * of_each_thread + of_all

    def _scratch(self) -> tuple[int, int, bool]:
        """The kernel's own word: bytes of each thread, bytes of all together, are the keys read twice?"""
        p = self.problem
        options, stand_ins = records(p, lambda shape, dtype: np.broadcast_to(np.empty((), dtype), shape))
        scratch: tuple[int, int, bool] = _core.scratch(
            p.query, p.key, p.value, p.mask, p.is_causal, self.isa, self.num_threads, options, stand_ins
        )
        return scratch

    @property
    def passes(self) -> tuple[str, ...]:
        return ("forward", *(f"second pass for {name}" for name in self.second_pass))

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons, in plain sentences."""
        settings, (queries, keys) = _settings(), self.tile
        threads_from = settings.threads_from if self.problem.num_threads is None else "given as num_threads"
        reasons = [
            f"Instruction set {self.isa}: {settings.isa_from}.",
            f"{_counted(self.num_threads, 'thread')}: {threads_from}.",
            f"Weights exist one tile of {queries} x {keys} at a time; no n_q x n_k array is made.",
        ]
        if self.second_pass:
            reasons.append(
                f"The exponentials of {queries} rows outgrow the cache: received reads the keys again."
            )
        return tuple(reasons)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        p = self.problem
        heads = _counted(p.heads, "head") + (
            f" on {_counted(p.kv_heads, 'key head')}" if p.kv_heads != p.heads else ""
        )
        width = f"d_k {p.d_k}" + ("" if p.value is None else f", d_v {p.d_v}")
        batch = f"batch {' x '.join(map(str, p.lead))}, " if p.lead else ""
        causal = (
            f"causal from position {p.offset if p.rules.query_offsets is None else 'of each batch entry'}"
        )
        kind = f", {causal}" if p.is_causal else ""
        kind += "" if p.mask is None else ", boolean mask" if p.mask.dtype == np.bool_ else ", additive mask"
        kind += "".join(f", {word}" for word in p.rules.words())
        queries, keys = self.tile
        rows = [
            ("problem", f"{batch}{heads}, {p.n_q} queries x {p.n_k} keys, {width}, {p.query.dtype}{kind}"),
            *([("returns", f"{p.request.words()}, beside the output")] if p.request.words() else ()),
            ("runs on", f"kernel, {self.isa}, {_counted(self.num_threads, 'thread')}"),
            ("tiles", f"{queries} queries x {keys} keys, {self.lanes} numbers per instruction"),
            ("passes", ", ".join(self.passes)),
            ("scratch", f"about {binary(self.scratch_bytes)}, beside outputs"),
            *(("why" if i == 0 else "", reason) for i, reason in enumerate(self.why)),
        ]
        return "\n".join(f"{label:<9}{text}" for label, text in rows)


def plan(
    query: AnyArray,
    key: AnyArray,
    value: AnyArray,
    attn_mask: AnyArray = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    **options: Any,
) -> Plan:
    """What :func:`headwise.attention` would run for the same arguments; computes nothing.

    The environment may name the instruction set (``HEADWISE_ISA``) and the number of threads
    (``HEADWISE_NUM_THREADS``); both are read once, at the first call of the process.

    Args:
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa: as for ``attention``.
        options: any keyword of ``attention``.

    Raises:
        HeadwiseError: whatever ``attention`` would refuse, with the same message.

    >>> import numpy as np
    >>> x = np.zeros((8, 100, 64))
    >>> print(plan(x, x, x, is_causal=True, num_threads=2).passes)
    ('forward',)
    """
    arrays = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    (q, k, v, mask, bias), _ = take(arrays | {"attn_bias": options.pop("attn_bias", None)})
    return make_plan(
        build_problem(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa, attn_bias=bias, **options)
    )


def make_plan(problem: Problem) -> Plan:
    """Choose for a checked problem."""
    settings = _settings()
    return Plan(problem, settings.isa, problem.num_threads or settings.num_threads)


class Settings(NamedTuple):
    """What this processor and the environment say, with the reasons."""

    isa: str
    isa_from: str
    num_threads: int
    threads_from: str


@cache
def _settings() -> Settings:
    """Reads ``HEADWISE_ISA`` and ``HEADWISE_NUM_THREADS``; once, so that later calls cost less."""
    isa_names = _core.isa_names()
    isa, isa_from = isa_names[-1], "the widest that this processor runs"
    if asked := os.environ.get("HEADWISE_ISA"):
        if asked not in isa_names:
            expected = f"one that this processor runs ({', '.join(isa_names)})"
            raise CapabilityError("HEADWISE_ISA", expected, asked, "unset it to take the widest")
        isa, isa_from = asked, "asked for by HEADWISE_ISA"
    num_threads, threads_from = _core.default_threads(), "one per processor that this process may use"
    if asked := os.environ.get("HEADWISE_NUM_THREADS"):
        if not (asked.isascii() and asked.isdecimal() and 1 <= int(asked) <= MOST_THREADS):
            raise HeadwiseError(
                "HEADWISE_NUM_THREADS", "a whole number >= 1", asked, "unset it to take the default"
            )
        num_threads, threads_from = int(asked), "asked for by HEADWISE_NUM_THREADS"
    return Settings(isa, isa_from, num_threads, threads_from)


@cache
def _tile(isa: str, dtype: np.dtype[Any]) -> tuple[int, int, int]:
    lanes, queries, keys = _core.tile(isa, dtype.name)
    return lanes, queries, keys


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
