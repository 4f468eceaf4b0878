"""Every quantity of one attention layer: its value, its formula in letters and in numbers.

Conventions, the field's own: a multiply-add is 2 floating-point operations; a matrix product of (a, b) with
(b, c) is 2·a·b·c. Only visible pairs of query and key are counted. Operations that are not products stand
apart: the addition of biases, the scale (1 per visible score), and the softmax (5 per visible score:
compare with the maximum, subtract it, exponential, add to the sum, divide). Positions, norms, dropout and
additive masks are not counted.
"""

from dataclasses import dataclass

from headwise.costs.formula import Formula, nothing, times, total
from headwise.costs.letters import Letters
from headwise.costs.sizes import Layer, Work

SOFTMAX = 5  # operations per visible score
SOFTMAX_BACKWARD = 4  # per visible score: multiply and add for the row's sum, subtract it, multiply
LSE_BYTES = 4  # float32, which a streaming pass keeps per row; 8 where everything is float64


@dataclass(frozen=True)
class Quantity:
    """One number: ``key`` ("flops.scores"), a name, its value and unit, and the formula that computed it."""

    key: str
    name: str
    value: int | float
    unit: str
    formula: str
    numbers: str


def quantities(layer: Layer, work: Work | None) -> list[Quantity]:
    """Everything about one layer; without `work` what depends on no length."""
    letters = Letters(layer, work)
    found = _parameters(layer, letters)
    if work is None:
        return found
    found += _flops(layer, letters)
    if work.cached == 0:
        found += _backward(letters, found)
    return [
        *found,
        *_bytes(layer, letters, found),
        *_cache(layer, work, letters),
        *_activations(layer, work, letters),
    ]


def cache_token(layer: Layer, cache_bytes: float) -> Quantity:
    """Bytes of one token's keys and values in one layer."""
    letters, b = Letters(layer, None), Formula.of("b", cache_bytes)
    if layer.latent:
        return _made("cache.token", "one token's K and V", times(letters.r_kv + letters.d_rope, b), "bytes")
    width = letters.d_k + letters.d_v
    if layer.head_dim == layer.v_head_dim:
        return _made("cache.token", "one token's K and V", times(2, letters.h_kv, letters.d_k, b), "bytes")
    return _made("cache.token", "one token's K and V", times(letters.h_kv, width, b), "bytes")


def _made(key: str, name: str, formula: Formula, unit: str) -> Quantity:
    return Quantity(key, name, formula.value, unit, formula.letters, formula.numbers)


def _weights(layer: Layer, x: Letters) -> dict[str, tuple[str, Formula]]:
    """Name and size of every weight matrix."""
    if layer.latent is None:
        return {
            "w_q": ("W_Q", x.d_model * x.h * x.d_k),
            "w_k": ("W_K", x.d_context * x.h_kv * x.d_k),
            "w_v": ("W_V", x.d_context_v * x.h_kv * x.d_v),
            "w_o": ("W_O", x.h * x.d_v * x.d_out),
        }
    if layer.latent.q_rank is None:
        query = {"w_q": ("W_Q", times(x.d_model, x.h, x.d_k))}
    else:
        query = {
            "w_q_down": ("W_Q to the latent", x.d_model * x.r_q),
            "w_q_up": ("W_Q to the heads", times(x.r_q, x.h, x.d_k)),
        }
    return query | {
        "w_kv_down": ("W_KV to the latent", times(x.d_context, x.r_kv + x.d_rope)),
        "w_kv_up": ("W_KV to the heads", times(x.r_kv, x.h, x.d_nope + x.d_v)),
        "w_o": ("W_O", x.h * x.d_v * x.d_out),
    }


def _biases(layer: Layer, x: Letters) -> dict[str, tuple[str, Formula]]:
    widths = {"q": x.h * x.d_k, "k": x.h_kv * x.d_k, "v": x.h_kv * x.d_v, "o": x.d_out}
    if layer.latent:
        widths = {"q": x.r_q if layer.latent.q_rank else x.h * x.d_k, "k": x.r_kv + x.d_rope, "o": x.d_out}
    return {
        f"b_{letter}": (f"bias of W_{letter.upper()}", widths[letter])
        for letter in layer.bias
        if letter in widths
    }


def _parameters(layer: Layer, x: Letters) -> list[Quantity]:
    weights, biases = _weights(layer, x), _biases(layer, x)
    found = []
    if layer.latent is None:
        one_head = _made("parameters.head_q", "one head's part of W_Q", x.d_model * x.d_k, "parameters")
        found.append(one_head)
    for key, (name, formula) in (weights | biases).items():
        found.append(_made(f"parameters.{key}", name, formula, "parameters"))
    rest = nothing()
    if layer.norms:
        rest = rest + Formula.of("norms", layer.norms)
        found.append(_made("parameters.norms", "norms and others", rest, "parameters"))
    bias = total([formula for _, formula in biases.values()])
    if layer.extra:
        extra = Formula.of("extra keys and values", layer.extra)
        found.append(_made("parameters.extra", "learned keys and values", extra, "parameters"))
        bias = bias + extra if biases else extra
    plain = total(
        [*(Formula.of(name, f.value) for name, f in weights.values()), *([rest] if rest.letters else [])]
    )
    found.append(_made("parameters.without_biases", "all without biases", plain, "parameters"))
    found.append(_made("parameters.biases", "biases", bias, "parameters"))
    everything = Formula.of("without biases", plain.value) + Formula.of("biases", bias.value)
    found.append(_made("parameters.total", "all parameters", everything, "parameters"))
    return found


def _flops(layer: Layer, x: Letters) -> list[Quantity]:
    found = [
        _made("pairs.visible", "visible pairs", x.pairs_formula, "pairs per head"),
        _made("pairs.all", "all pairs", x.grid, "pairs per head"),
    ]
    projections, expanded = [], x.n_k
    for key, (name, size) in _weights(layer, x).items():
        rows = x.n_q if key[:3] in ("w_q", "w_o") else expanded if key == "w_kv_up" else x.n_new
        projections.append(_made(f"flops.{key}", f"product with {name}", times(2, x.B, rows, size), "FLOPs"))
    scores = times(2, x.B, x.h, x.pairs, x.d_k)
    values = times(2, x.B, x.h, x.pairs, x.d_v)
    projected = Formula.of("projections", sum(quantity.value for quantity in projections))
    found += [
        *projections,
        _made("flops.projections", "all projections", total([_named(q) for q in projections]), "FLOPs"),
        _made("flops.scores", "scores, Q K\u1d40", scores, "FLOPs"),
        _made("flops.values", "blend of values, A V", values, "FLOPs"),
        _made(
            "flops.matmul",
            "all matrix products",
            total([projected, Formula.of("scores", scores.value), Formula.of("values", values.value)]),
            "FLOPs",
        ),
    ]
    biases = _bias_additions(layer, x)
    scale, softmax = times(x.B, x.h, x.pairs), times(SOFTMAX, x.B, x.h, x.pairs)
    found += [
        _made("flops.biases", "additions of biases", biases, "FLOPs"),
        _made("flops.scale", "scaling of scores", scale, "FLOPs"),
        _made("flops.exponentials", "exponentials of softmax", scale, "exponentials"),
        _made("flops.softmax", "softmax", softmax, "FLOPs"),
    ]
    parts = [q for q in found if q.key in ("flops.matmul", "flops.biases", "flops.scale", "flops.softmax")]
    found.append(_made("flops.forward", "forward pass", total([_named(q) for q in parts]), "FLOPs"))
    return found


def _bias_additions(layer: Layer, x: Letters) -> Formula:
    rows = {"b_q": x.n_q, "b_o": x.n_q, "b_k": x.n_new, "b_v": x.n_new}
    return total([times(x.B, rows[key], width) for key, (_, width) in _biases(layer, x).items()])


def _named(quantity: Quantity) -> Formula:
    return Formula.of(quantity.key.partition(".")[2], quantity.value)


def _backward(x: Letters, found: list[Quantity]) -> list[Quantity]:
    forward = {quantity.key: _named(quantity) for quantity in found}
    doubled = {key: times(2, forward[f"flops.{key}"]) for key in ("projections", "scores", "values")}
    softmax, scale = times(SOFTMAX_BACKWARD, x.B, x.h, x.pairs), times(x.B, x.h, x.pairs)
    matmul = Formula.of("matmul", sum(formula.value for formula in doubled.values()))
    biases = forward["flops.biases"]
    parts = [matmul, biases, Formula.of("scale", scale.value), Formula.of("softmax", softmax.value)]
    return [
        _made("backward.projections", "projections", doubled["projections"], "FLOPs"),
        _made("backward.scores", "scores, into Q and K", doubled["scores"], "FLOPs"),
        _made("backward.values", "values, into A and V", doubled["values"], "FLOPs"),
        _made("backward.matmul", "all matrix products", total(list(doubled.values())), "FLOPs"),
        _made("backward.biases", "biases", biases, "FLOPs"),
        _made("backward.scale", "scaling", scale, "FLOPs"),
        _made("backward.softmax", "softmax", softmax, "FLOPs"),
        _made("backward.total", "backward pass", total(parts), "FLOPs"),
        _made("backward.recomputed", "scores again, streaming", forward["flops.scores"], "FLOPs"),
    ]


def _bytes(layer: Layer, x: Letters, found: list[Quantity]) -> list[Quantity]:
    """Traffic if every operator reads each of its inputs once and writes its output once.

    The projections of one input count as one operator.
    """
    parameters = next(q.value for q in found if q.key == "parameters.total")
    weights = times(Formula.of("parameters", parameters), x.b)
    inputs = x.n_q * x.d_model
    if x.n_new is not x.n_q:
        inputs = inputs + x.n_k * x.d_context
    if x.d_context_v is not x.d_context:
        inputs = inputs + x.n_new * x.d_context_v
    made = x.n_q * x.h * x.d_k + _keys_and_values(layer, x)
    if layer.latent:  # latents are written, and read by the projections up
        made = made + x.n_new * (x.r_kv + x.d_rope) + x.n_k * x.r_kv
        made = made + times(2, x.n_q, x.r_q) if layer.latent.q_rank else made
    projections = times(x.B, total([inputs, made, x.n_q * x.h * x.d_v, x.n_q * x.d_out]), x.b)
    core = x.n_q * x.h * (x.d_k + x.d_v) + x.n_seen * x.h_kv * (x.d_k + x.d_v)
    attention, grid = times(x.B, core, x.b), times(4, x.B, x.h, x.grid, x.b)
    streaming = total(
        [
            Formula.of("weights", weights.value),
            Formula.of("projections", projections.value),
            Formula.of("attention", attention.value),
        ]
    )
    eager = Formula.of("streaming", streaming.value) + Formula.of("grid", grid.value)
    return [
        _made("bytes.weights", "weights read", weights, "bytes"),
        _made("bytes.projections", "projections, in and out", projections, "bytes"),
        _made("bytes.attention", "Q, K, V and output", attention, "bytes"),
        _made("bytes.streaming", "streaming layer", streaming, "bytes"),
        _made("bytes.grid", "grid of scores, eager", grid, "bytes"),
        _made("bytes.eager", "eager layer", eager, "bytes"),
    ]


def _keys_and_values(layer: Layer, x: Letters) -> Formula:
    """Numbers in the keys and values that a pass makes: those of the new tokens, or of all from latents."""
    return (x.n_k if layer.latent else x.n_new) * x.h_kv * (x.d_k + x.d_v)


def _cache(layer: Layer, work: Work, x: Letters) -> list[Quantity]:
    token = cache_token(layer, work.cache_bytes)
    kept = x.n_k
    if layer.window is not None and layer.window[0] is not None and layer.window[0] + 1 < work.n_k:
        kept = Formula.of("(left + 1)", layer.window[0] + 1)
    whole = times(x.B, kept, Formula.of("token", token.value))
    return [
        token,
        _made("cache.tokens", "tokens kept", kept, "tokens"),
        _made("cache.total", "key/value cache", whole, "bytes"),
    ]


def _activations(layer: Layer, work: Work, x: Letters) -> list[Quantity]:
    lse = Formula.of("b_lse", max(LSE_BYTES, work.dtype_bytes))
    shared = times(x.B, x.n_q * x.h * (x.d_k + x.d_v) + _keys_and_values(layer, x), x.b)
    return [
        _made("activations.shared", "Q, K, V and head outputs", shared, "bytes"),
        _made("activations.eager", "eager: every weight", times(x.B, x.h, x.grid, x.b), "bytes"),
        _made(
            "activations.streaming",
            "streaming: lse of rows",
            times(x.B, x.h, x.n_q, lse),
            "bytes",
        ),
    ]
