"""One attention problem, validated once.

Every shape message of the package is born here and in the modules beside it. Letters: ``H``
query heads, ``H_kv`` key/value heads, ``n_q`` queries, ``n_k`` keys, ``d_k`` width of queries and keys,
``d_v`` width of values; any number of leading axes before them.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from headwise.compute.options import check_dropout, check_flags, check_running, resolve_scale
from headwise.compute.problem.masks import check_classes, check_mask, check_tokens
from headwise.compute.problem.offsets import check_offset
from headwise.compute.problem.projections import BlockSizes, check_block
from headwise.compute.problem.rules import NO_RULES, Rules, build_rules, refuse_unknown
from headwise.compute.problem.sizes import Shape, check_sizes, divisors
from headwise.compute.request import AuxRequest
from headwise.errors import HeadwiseError
from headwise.plain.types import Array, Integers
from headwise.plain.values import shown

__all__ = ["NOTHING", "BlockSizes", "Problem", "Rules", "build_problem", "check_block", "divisors"]

NOTHING = AuxRequest()


class Problem(NamedTuple):
    """What to compute, in one normal form: views of shape ``(*lead, heads, n, d)``, every option resolved.

    ``mask`` is None, boolean (True = attend) or of the query's dtype (added), seen as
    ``(*lead, H, n_q, n_k)``. ``value`` is None where only statistics
    are asked for. ``offset`` is the position of query 0 among the keys; where it differs between batch
    entries it is 0 and ``rules.query_offsets`` says it. ``one_head`` says that the caller
    gave ``(n, d)`` arrays, so that the results lose their head axis again.
    """

    query: Array
    key: Array
    value: Array | None
    mask: Array | None
    scale: float
    is_causal: bool
    offset: int
    rules: Rules
    request: AuxRequest
    key_tokens: Integers | None
    query_tokens: Integers | None
    classes: Integers | None
    num_threads: int | None
    one_head: bool

    @property
    def lead(self) -> Shape:
        return self.query.shape[:-3]

    @property
    def heads(self) -> int:
        return self.query.shape[-3]

    @property
    def kv_heads(self) -> int:
        return self.key.shape[-3]

    @property
    def n_q(self) -> int:
        return self.query.shape[-2]

    @property
    def n_k(self) -> int:
        return self.key.shape[-2]

    @property
    def d_k(self) -> int:
        return self.query.shape[-1]

    @property
    def d_v(self) -> int:
        return 0 if self.value is None else self.value.shape[-1]


def build_problem(
    query: Array,
    key: Array,
    value: Array | None,
    mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    causal_alignment: str | None = None,
    query_offset: Any = None,
    return_aux: Any = None,
    implementation: str = "auto",
    num_threads: int | None = None,
    **given: Any,
) -> Problem:
    """Check every option once and bring the arrays into one normal form.

    The options are those of ``headwise.attention``, which says what they mean; ``given`` takes the others.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: with argument, expected, received and a hint.
    """
    flat = (
        (query.shape, key.shape, None if value is None else value.shape, query.dtype.char),
        (dropout_p, is_causal, scale, enable_gqa, implementation, num_threads),
    )
    try:
        factor = _check_flat(*flat[0], *flat[1])
    except TypeError:  # an option that cannot be a key of the cache: refused below, by name
        factor = _check_flat.__wrapped__(*flat[0], *flat[1])
    request = NOTHING if return_aux is None else return_aux
    if not isinstance(request, AuxRequest):
        hint = "return_aux=headwise.AuxRequest(entropy=True)"
        raise HeadwiseError("return_aux", "None or an AuxRequest", shown(request), hint)
    if given:
        given = refuse_unknown(given)
    one_head = query.ndim == 2
    if one_head:
        query, key, value = query[None], key[None], None if value is None else value[None]
    n_q, n_k, lead = query.shape[-2], key.shape[-2], query.shape[:-3]
    fields, needed_by = None, None
    if given or dropout_p:
        fields, needed_by = build_rules(given, dropout_p, (*query.shape[:-1], n_k), query.dtype)
    offset = check_offset(
        query_offset,
        causal_alignment,
        lead,
        n_q,
        n_k,
        "is_causal" if is_causal else needed_by or request.needs_positions(),
        *((fields.get("query_lengths"), fields.get("kv_lengths")) if fields else ()),
    )
    key_tokens = query_tokens = classes = None
    if request.matches is not None:
        key_tokens, query_tokens = check_tokens(request.matches, lead, n_q, n_k, offset)
    if request.classes is not None:
        classes = check_classes(request, lead, n_k)
    if not isinstance(offset, int):
        fields, offset = {**(fields or {}), "query_offsets": offset}, 0
    return Problem(
        query,
        key,
        value,
        None if mask is None else check_mask(mask, query.dtype, (*query.shape[:-1], n_k)),
        factor,
        is_causal,
        offset,
        Rules(**fields) if fields else NO_RULES,
        request,
        key_tokens,
        query_tokens,
        classes,
        num_threads,
        one_head,
    )


# Calls repeat: in a loop over small problems, checking the same shapes anew would cost as much as computing.
@lru_cache(maxsize=1024, typed=True)
def _check_flat(
    query: Shape,
    key: Shape,
    value: Shape | None,
    dtype: str,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool | None,
    implementation: str,
    num_threads: int | None,
) -> float:
    """Checks of what is not an array, a pure function of it; returns the factor of the scores."""
    check_flags(is_causal, enable_gqa)
    check_dropout(dropout_p)
    check_running(implementation, num_threads)
    check_sizes(query, key, value, enable_gqa)
    return resolve_scale(scale, query[-1], dtype)
