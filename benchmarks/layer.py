"""Verify, then time: the torch layers of headwise beside ``torch.nn.MultiheadAttention``, same weights.

Each case is first checked against torch's layer in float64; then both run in turn, and the median of the
ratios of the pairs counts.

"layer with statistics" is entropy, largest weight and attention received of every head: here in the pass
that makes the output, there computed from the weights of every head. "attention, statistics" is the same
without the four projections, which are torch's on both sides and the larger part of the layer's work.

    python benchmarks/layer.py [--threads N] [--pairs N] [--passive] [--json FILE]

torch's OpenMP workers spin for a while after each of its calls and compete with whoever runs next.
``--passive`` sends them to sleep at once, as ``benchmarks/run.py`` does; without it they are as torch ships.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if "--passive" in sys.argv:
    os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")

import torch
from torch import Tensor, nn

from headwise import AuxRequest
from headwise.torch import MultiHeadAttention, attention
from headwise.torch.compat import MultiheadAttention

BATCH, N, D_MODEL, HEADS = 8, 512, 768, 12
TOLERANCE = 3e-6  # relative Frobenius error against float64
STATISTICS = AuxRequest(entropy=True, max_weight=True, received=True)
Call = Callable[[Tensor], tuple[Tensor, ...]]


def layers() -> tuple[nn.MultiheadAttention, MultiheadAttention, MultiHeadAttention]:
    """torch's layer, the drop-in that shares its parameters, and headwise's own with the same weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True).eval()
    nn.init.normal_(theirs.in_proj_bias, std=0.1)
    own = MultiHeadAttention(D_MODEL, HEADS).eval()
    with torch.no_grad():
        projections = (own.q_proj, own.k_proj, own.v_proj)
        for name in ("weight", "bias"):
            for projection, part in zip(
                projections, getattr(theirs, f"in_proj_{name}").chunk(3), strict=True
            ):
                getattr(projection, name).copy_(part)
            getattr(own.out_proj, name).copy_(getattr(theirs.out_proj, name))
    return theirs, MultiheadAttention.from_torch(theirs), own


def dense_numbers(weights: Tensor) -> tuple[Tensor, ...]:
    """Entropy, largest weight and received of every head, from the weights."""
    return torch.special.entr(weights).sum(-1), weights.amax(-1), weights.sum(-2)


def step(layer: nn.Module, x: Tensor, call: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Output and the gradients of the input and of the parameters."""
    x = x.detach().requires_grad_()
    output = call(x)
    return output.detach(), *torch.autograd.grad(output.square().sum(), (x, *layer.parameters()))


def cases() -> dict[str, tuple[float | None, bool, Call, Call, Call]]:
    """Name -> target ratio, whether gradients are on, torch's call, ours, and torch's in float64."""
    theirs, drop_in, own = layers()
    wide = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=torch.float64).eval()
    wide.load_state_dict(theirs.state_dict())

    def plain(layer: nn.MultiheadAttention) -> Call:
        return lambda x: layer(x, x, x, need_weights=False)[:1]

    def with_numbers(layer: nn.MultiheadAttention) -> Call:
        def call(x: Tensor) -> tuple[Tensor, ...]:
            output, weights = layer(x, x, x, average_attn_weights=False)
            return output, *dense_numbers(weights)

        return call

    def own_with_numbers(x: Tensor) -> tuple[Tensor, ...]:
        output, aux = own(x, return_aux=STATISTICS)
        return output, aux.entropy, aux.max_weight, aux.received

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def alone(x: Tensor) -> tuple[Tensor, ...]:
        output, aux = attention(heads(x), heads(x), heads(x), return_aux=STATISTICS)
        return output, aux.entropy, aux.max_weight, aux.received

    def alone_dense(x: Tensor) -> tuple[Tensor, ...]:
        one = heads(x)
        weights = torch.softmax(one @ one.transpose(-1, -2) / one.shape[-1] ** 0.5, -1)
        return weights @ one, *dense_numbers(weights)

    def training(layer: nn.Module) -> Call:
        return lambda x: step(layer, x, lambda y: layer(y, y, y, need_weights=False)[0])[:2]

    return {
        "layer": (1.1, False, plain(theirs), lambda x: (own(x),), plain(wide)),
        "drop-in": (1.1, False, plain(theirs), plain(drop_in), plain(wide)),
        "layer with statistics": (2.5, False, with_numbers(theirs), own_with_numbers, with_numbers(wide)),
        "attention, statistics": (2.5, False, alone_dense, alone, alone_dense),
        "training step": (
            None, True, training(theirs), lambda x: step(own, x, own)[:2], training(wide),
        ),
    }  # fmt: skip


def error(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
    """Largest relative Frobenius error."""
    pairs = zip(found, expected, strict=True)
    return max(float((x.double() - y).norm() / y.norm()) for x, y in pairs)


def seconds(call: Call, x: Tensor) -> float:
    start = time.perf_counter()
    call(x)
    return time.perf_counter() - start


def measure(name: str, case: tuple[float | None, bool, Call, Call, Call], pairs: int) -> dict[str, Any]:
    target, grad, theirs, ours, wide = case
    x = torch.randn(BATCH, N, D_MODEL)
    with torch.set_grad_enabled(grad):
        expected = wide(x.double())
        for who, call in (("headwise", ours), ("torch", theirs)):
            if not (off := error(call(x), expected)) <= TOLERANCE:
                sys.exit(f"{name}: {who} is wrong (relative error {off:.1e}); nothing is timed.")
        times = [(seconds(ours, x), seconds(theirs, x)) for _ in range(pairs)]
    ratios = sorted(b / a for a, b in times)
    mine, other = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return {
        "case": name,
        "headwise_ms": mine,
        "torch_ms": other,
        "ratio": statistics.median(ratios),
        "quarters": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
        "target": target,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--passive", action="store_true", help="torch's workers sleep after each call")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shape = f"({BATCH}, {N}, {D_MODEL}), {HEADS} heads, float32, {arguments.threads} threads"
    workers = "asleep" if arguments.passive else "as torch ships"
    print(f"torch {torch.__version__}, {shape}, workers {workers}")
    print(f"{'case':<24}{'headwise ms':>12}{'torch ms':>10}{'ratio':>7}  {'quarters':<12}target")
    results = []
    for name, case in cases().items():
        found = measure(name, case, arguments.pairs)
        results.append(found)
        low, high = found["quarters"]
        target = "" if found["target"] is None else f"{found['target']:.1f}"
        print(f"{name:<24}{found['headwise_ms']:>12.1f}{found['torch_ms']:>10.1f}{found['ratio']:>7.2f}  "
              f"{low:.2f}-{high:.2f}   {target}", flush=True)  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
