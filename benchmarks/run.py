"""Verify, then time: headwise beside torch's fused attention, in one process, on the same threads.

Every case is first checked against the float64 reference; a wrong kernel is never timed. Runs are interleaved
in pairs and the median ratio of the pairs counts, so a machine whose speed drifts drifts for both. The
multiply-add rate of the processor is measured beside each pair: the ceiling that both are compared with.

    python benchmarks/run.py [--threads N] [--case TEXT] [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

# torch's OpenMP workers spin after each call and would take the core from whoever runs next.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import numpy as np
import torch
from cases import CASES, Case

import headwise
from headwise import _core
from headwise.reference import reference_attention

TOLERANCE = 1e-6  # relative Frobenius error of float32 on N(0, 1) inputs, both sides
CHECKED_ROWS = 64  # rows of every head compared with the reference, spread over the sequence


def verify(case: Case, arrays: list[np.ndarray], output: np.ndarray) -> float:
    """Relative Frobenius error against float64, over a sample of rows."""
    query, key, value = arrays
    rows = np.unique(np.linspace(0, case.n - 1, CHECKED_ROWS).astype(int))
    visible = np.arange(case.n) <= rows[:, None] if case.causal else None
    expected = reference_attention(query[:, rows], key, value, visible)[0]
    return float(np.linalg.norm(output[:, rows] - expected) / np.linalg.norm(expected))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(case: Case, threads: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((case.heads, case.n, case.d)).astype(np.float32) for _ in range(3)]
    tensors = [torch.from_numpy(a)[None] for a in arrays]

    def ours() -> np.ndarray:
        return headwise.attention(*arrays, is_causal=case.causal, num_threads=threads)

    def theirs() -> np.ndarray:
        return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=case.causal)[0].numpy()

    errors = {name: verify(case, arrays, call()) for name, call in (("headwise", ours), ("torch", theirs))}
    for name, error in errors.items():
        if not error <= TOLERANCE:
            sys.exit(f"{case.name}: {name} is wrong (relative error {error:.1e}); nothing is timed.")

    fma, mine, other = [], [], []
    for _ in range(case.pairs):
        fma.append(2 * _core.fma_rate(seconds=0.03) * threads)
        mine.append(seconds(ours))
        other.append(seconds(theirs))
    ratios = sorted(b / a for a, b in zip(mine, other, strict=True))
    peak = statistics.median(fma)
    quarter = len(ratios) // 4
    return {
        "case": case.name,
        "threads": threads,
        "headwise_ms": 1e3 * statistics.median(mine),
        "torch_ms": 1e3 * statistics.median(other),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [ratios[quarter], ratios[-1 - quarter]],
        "headwise_of_fma": case.flops / statistics.median(mine) / peak,
        "torch_of_fma": case.flops / statistics.median(other) / peak,
        "fma_gflops": peak / 1e9,
        "error": errors["headwise"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    parser.add_argument("--case", default="", help="run only the cases whose name contains this text")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{platform.processor() or platform.machine()}, instruction set {_core.isa_names()[-1]}, "
        f"{options.threads} thread(s), float32; torch {torch.__version__}, numpy {np.__version__}"
    )
    print(
        f"{'case':<20}{'headwise':>11}{'torch':>11}{'ratio':>8}{'quartiles':>14}{'of FMA':>16}{'error':>10}"
    )
    results = []
    with torch.no_grad():
        for case in CASES:
            if options.case not in case.name:
                continue
            r = measure(case, options.threads)
            results.append(r)
            low, high = r["ratio_quartiles"]
            print(
                f"{r['case']:<20}{r['headwise_ms']:>8.2f} ms{r['torch_ms']:>8.2f} ms{r['ratio']:>7.2f}x"
                f"{f'{low:.2f} - {high:.2f}':>14}{r['headwise_of_fma']:>9.0%} :{r['torch_of_fma']:>4.0%}"
                f"{r['error']:>11.1e}"
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
