"""The letters that stand for the sizes of a layer and of its work."""

from headwise.costs.formula import Formula
from headwise.costs.pairs import keys_seen, pairs_formula
from headwise.costs.sizes import Layer, Work


class Letters:
    """The letters of one layer and its work, as formulas."""

    def __init__(self, layer: Layer, work: Work | None) -> None:
        latent = layer.latent
        self.d_model = Formula.of("d_model", layer.d_model)
        same = layer.d_context == layer.d_model
        self.d_context = self.d_model if same else Formula.of("d_context", layer.d_context)
        self.d_context_v = self.d_context
        if layer.d_context_v != layer.d_context:
            self.d_context_v = Formula.of("d_context_v", layer.d_context_v)
        self.d_out = self.d_model if layer.d_out == layer.d_model else Formula.of("d_out", layer.d_out)
        self.h = Formula.of("h", layer.heads)
        self.h_kv = self.h if layer.kv_heads == layer.heads else Formula.of("h_kv", layer.kv_heads)
        self.d_nope = Formula.of("d_nope" if latent else "d_k", layer.head_dim)
        self.d_v = Formula.of("d_v", layer.v_head_dim)
        self.d_rope = Formula.of("d_rope", latent.rope_dim if latent else 0)
        self.d_k = self.d_nope + self.d_rope if latent else self.d_nope
        self.r_kv = Formula.of("r_kv", latent.kv_rank if latent else 0)
        self.r_q = Formula.of("r_q", latent.q_rank if latent and latent.q_rank else 0)
        if work is None:
            return
        self.B = Formula.of("B", work.batch)
        square = work.n_q == work.n_k and not layer.cross
        self.n_q = Formula.of("n" if square else "n_q", work.n_q)
        self.n_k = self.n_q if square else Formula.of("n_k", work.n_k)
        self.n_new = self.n_k if layer.cross else self.n_q
        self.b = Formula.of("b", work.dtype_bytes)
        self.b_c = self.b if work.cache_bytes == work.dtype_bytes else Formula.of("b_cache", work.cache_bytes)
        pairs = pairs_formula(work.n_q, work.n_k, layer.causal, layer.window, work.offset)
        if pairs.letters == "n_q·n_k":
            pairs = self.n_q * self.n_k
        if layer.extra_keys:
            pairs = pairs + layer.extra_keys * self.n_q
        self.pairs_formula = pairs
        self.pairs = Formula.of("pairs", pairs.value)
        self.grid = self.n_q * (self.n_k + layer.extra_keys if layer.extra_keys else self.n_k)
        seen = keys_seen(work.n_q, work.n_k, layer.causal, layer.window, work.offset)
        self.n_seen = self.n_k if seen == work.n_k else Formula.of("n_seen", seen)
