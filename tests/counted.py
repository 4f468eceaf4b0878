"""A multi-head block in plain loops over numbers that count what is done with them.

It is the other way to the numbers of ``headwise.cost``: nothing here knows a formula. Only visible pairs
are touched.
"""

import math
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Operations by phase, and weights that were made."""

    phase: str = ""
    operations: Counter = field(default_factory=Counter)
    exponentials: int = 0
    parameters: Counter = field(default_factory=Counter)


class Number:
    """A float that counts every operation on it into a tally."""

    __slots__ = ("value", "tally")

    def __init__(self, value, tally):
        self.value, self.tally = value, tally

    def _done(self, value):
        self.tally.operations[self.tally.phase] += 1
        return Number(value, self.tally)

    def __add__(self, other):
        return self._done(self.value + other.value)

    def __sub__(self, other):
        return self._done(self.value - other.value)

    def __mul__(self, other):
        return self._done(self.value * other.value)

    def __truediv__(self, other):
        return self._done(self.value / other.value)

    def larger(self, other):
        return self._done(max(self.value, other.value))

    def exp(self):
        self.tally.exponentials += 1
        return self._done(math.exp(self.value))


class Counted:
    """One layer of the given sizes, weights and all; ``run`` does a forward pass and returns the tally."""

    def __init__(self, rng, layer):
        self.rng, self.layer, self.tally = rng, layer, Tally()
        h, h_kv, d_k, d_v = layer.heads, layer.kv_heads, layer.query_width, layer.v_head_dim
        if layer.latent is None:
            self.query = self.linear("w_q", layer.d_model, h * d_k, "q")
            self.key = self.linear("w_k", layer.d_context, h_kv * d_k, "k")
            self.value = self.linear("w_v", layer.d_context, h_kv * d_v, "v")
        else:
            rank = layer.latent.q_rank
            if rank is None:
                self.query = self.linear("w_q", layer.d_model, h * d_k, "q")
            else:
                down = self.linear("w_q_down", layer.d_model, rank, "q")
                up = self.linear("w_q_up", rank, h * d_k)
                self.query = lambda rows: up(down(rows))
            self.down = self.linear(
                "w_kv_down", layer.d_context, layer.latent.kv_rank + layer.latent.rope_dim, "k"
            )
            self.up = self.linear("w_kv_up", layer.latent.kv_rank, h * (layer.head_dim + d_v))
        self.out = self.linear("w_o", h * d_v, layer.d_out, "o")

    def number(self):
        return Number(float(self.rng.normal()), self.tally)

    def rows(self, n, width):
        return [[self.number() for _ in range(width)] for _ in range(n)]

    def linear(self, name, width_in, width_out, letter=None):
        """A function on rows of numbers; counts its products under its name and its bias under "biases"."""
        weight = self.rows(width_in, width_out)
        bias = self.rows(1, width_out)[0] if letter and letter in self.layer.bias else None
        self.tally.parameters[name] += width_in * width_out
        if bias:
            self.tally.parameters["biases"] += width_out

        def apply(rows):
            made = []
            for row in rows:
                self.tally.phase = name
                out = [self.dot(row, [line[j] for line in weight]) for j in range(width_out)]
                self.tally.phase = "biases"
                made.append([a + b for a, b in zip(out, bias, strict=True)] if bias else out)
            return made

        return apply

    def dot(self, left, right):
        total = Number(0.0, self.tally)
        for a, b in zip(left, right, strict=True):
            total = total + a * b
        return total

    def run(self, work):
        for _ in range(work.batch):
            self.one_sequence(work)
        return self.tally

    def one_sequence(self, work):
        layer = self.layer
        new = work.n_k - work.cached
        x = self.rows(work.n_q, layer.d_model)
        context = self.rows(new, layer.d_context) if layer.cross else x
        query = self.query(x)
        if layer.latent is None:
            width = layer.kv_heads * layer.query_width
            key = self.rows(work.cached, width) + self.key(context)
            value = self.rows(work.cached, layer.kv_heads * layer.v_head_dim) + self.value(context)
        else:
            key, value = self.from_latents(context, work.cached)
        heads = []
        group = layer.heads // layer.kv_heads
        for head in range(layer.heads):
            own = slice(head * layer.query_width, (head + 1) * layer.query_width)
            g = head // group
            own_k = slice(g * layer.query_width, (g + 1) * layer.query_width)
            own_v = slice(g * layer.v_head_dim, (g + 1) * layer.v_head_dim)
            keys, values = [row[own_k] for row in key], [row[own_v] for row in value]
            heads.append(
                [self.attend(row[own], keys, values, r + work.offset) for r, row in enumerate(query)]
            )
        self.out([[number for head in heads for number in head[r]] for r in range(work.n_q)])

    def from_latents(self, context, cached):
        layer = self.layer
        latents = self.rows(cached, layer.latent.kv_rank + layer.latent.rope_dim) + self.down(context)
        key, value = [], []
        made = self.up([latent[: layer.latent.kv_rank] for latent in latents])
        for latent, row in zip(latents, made, strict=True):
            rope = latent[layer.latent.kv_rank :]
            wide = layer.head_dim + layer.v_head_dim
            parts = [row[head * wide : (head + 1) * wide] for head in range(layer.heads)]
            key.append([number for part in parts for number in part[: layer.head_dim] + rope])
            value.append([number for part in parts for number in part[layer.head_dim :]])
        return key, value

    def visible(self, position, n_k):
        left, right = (None, None) if self.layer.window is None else self.layer.window
        for j in range(n_k):
            if self.layer.causal and j > position:
                continue
            if left is not None and j < position - left:
                continue
            if right is not None and j > position + right:
                continue
            yield j

    def attend(self, query, keys, values, position):
        tally, seen = self.tally, list(self.visible(position, len(keys)))
        tally.operations["pairs"] += len(seen)
        tally.phase = "scores"
        scores = [self.dot(query, keys[j]) for j in seen]
        tally.phase = "scale"
        scores = [score * Number(0.5, tally) for score in scores]
        tally.phase = "softmax"
        top, total = Number(-1e300, tally), Number(0.0, tally)
        for score in scores:
            top = top.larger(score)
        exponentials = [(score - top).exp() for score in scores]
        for exponential in exponentials:
            total = total + exponential
        weights = [exponential / total for exponential in exponentials]
        tally.phase = "values"
        blend = [Number(0.0, tally) for _ in range(self.layer.v_head_dim)]
        for weight, j in zip(weights, seen, strict=True):
            blend = [a + weight * b for a, b in zip(blend, values[j], strict=True)]
        return blend
