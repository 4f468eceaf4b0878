"""Verify, then time: headwise beside its peers, on the same threads and the same cores.

Everybody runs in a process of its own, which is stopped while another has its turn. Every contender is first
checked against the float64 reference; a wrong one is never timed. Rounds are interleaved and the median of the
round-by-round ratios counts, so a machine whose speed drifts drifts for all. The multiply-add rate of the
processor is measured in each round: the ceiling that all are compared with.

    python benchmarks/run.py [--threads N] [--case TEXT] [--json FILE]
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cases import (
    CASES,
    EXTRA_MEMORY_MB,
    MEMORY_CASE,
    OVER_EAGER,
    STATISTICS,
    STATISTICS_CASE,
    Case,
)
from worker import TOLERANCE, Worker

from headwise import _core

FUSED = ("torch", "onnxruntime", "openvino")
OTHERS = ("torch eager", "jax", "numpy")
SLOWEST = 4096  # the plain formula is not run beyond this many keys: its n x n arrays take gigabytes


def rounds(
    names: list[str], case: Case, threads: int
) -> tuple[dict[str, list[float]], list[float], dict[str, Any]]:
    """Seconds of every contender round by round, the multiply-add rate of each round, and the errors found."""
    workers = [Worker(name, case, threads) for name in names]
    try:
        errors: dict[str, Any] = {w.name: w.error if w.refusal is None else w.refusal for w in workers}
        for worker in workers:
            if worker.refusal is None and not (worker.error is not None and worker.error <= TOLERANCE):
                sys.exit(
                    f"{case.name}: {worker.name} is wrong (relative error {worker.error}); nothing is timed."
                )
        ready = [w for w in workers if w.refusal is None]
        times: dict[str, list[float]] = {w.name: [] for w in ready}
        fma = []
        for number in range(case.rounds + 1):
            rate = 2 * _core.fma_rate(seconds=0.02) * threads
            took = {w.name: w.turn() for w in ready}
            if number:  # the first round warms everybody up
                fma.append(rate)
                for name, value in took.items():
                    times[name].append(value)
        return times, fma, errors
    finally:
        for worker in workers:
            worker.close()


def ratios(others: list[float], mine: list[float]) -> dict[str, float]:
    """Median and quartiles of others / mine, round by round."""
    each = sorted(b / a for a, b in zip(mine, others, strict=True))
    quarter = len(each) // 4
    return {"median": statistics.median(each), "low": each[quarter], "high": each[-1 - quarter]}


def held(value: float, must: float | None, at_most: bool = False) -> str:
    if must is None:
        return ""
    fine = value <= must if at_most else value >= must
    return f"{'<=' if at_most else '>='} {must:g} {'held' if fine else 'MISSED'}"


def race(case: Case, threads: int) -> dict[str, Any]:
    """One case, everybody who is installed."""
    names = ["headwise", *FUSED, *(OTHERS if case.n <= SLOWEST // 2 else ())]
    times, fma, errors = rounds(names, case, threads)
    peak = statistics.median(fma)
    mine = times["headwise"]
    share = case.flops / statistics.median(mine) / peak
    print(f"{case.name:<22}{1e3 * statistics.median(mine):>9.3f} ms  {share:>4.0%} of FMA  {errors['headwise']:.0e}  "
          f"{held(share, case.of_fma)}")  # fmt: skip
    found = {}
    for name in names[1:]:
        if name not in times:
            print(f"    {name:<18}not run: {errors[name]}")
            continue
        ratio = found[name] = ratios(times[name], mine)
        print(
            f"    {name:<18}{1e3 * statistics.median(times[name]):>9.3f} ms  we are {ratio['median']:.2f}x as fast "
            f"({ratio['low']:.2f} - {ratio['high']:.2f})  {held(ratio['median'], case.over_torch) if name == 'torch' else ''}"
        )
    fastest = min((found[name]["median"] for name in FUSED if name in found), default=None)
    if fastest is not None and case.over_best is not None:
        print(
            f"    {'the fastest':<18}{'':>12}  we are {fastest:.2f}x as fast  {held(fastest, case.over_best)}"
        )
    return {"case": case.name, "threads": threads, "seconds": statistics.median(mine), "of_fma": share,
            "fma_gflops": peak / 1e9, "ratios": found, "errors": errors}  # fmt: skip


def riders(threads: int) -> dict[str, Any]:
    """What each statistic adds to the plain call, and the same numbers the usual way."""
    case = STATISTICS_CASE
    names = [
        "headwise",
        *(f"headwise, {name}" for name in STATISTICS),
        "headwise, everything",
        "torch eager, everything",
    ]
    times, _, _ = rounds(names, case, threads)
    print(f"{case.name}: time with statistics over the plain time")
    found = {}
    for name, (_, must) in STATISTICS.items():
        ratio = found[name] = ratios(times[f"headwise, {name}"], times["headwise"])
        print(f"    {name:<44}{ratio['median']:.3f} ({ratio['low']:.3f} - {ratio['high']:.3f})  "
              f"{held(ratio['median'], must, at_most=True)}")  # fmt: skip
    if "torch eager, everything" in times:
        ratio = found["eager"] = ratios(times["torch eager, everything"], times["headwise, everything"])
        print(
            f"    all of them by torch eager: we are {ratio['median']:.1f}x as fast  {held(ratio['median'], OVER_EAGER)}"
        )
    return {"case": case.name, "threads": threads, "ratios": found}


MEMORY = """
import resource, sys
from cases import EVERYTHING, MEMORY_CASE as case
import headwise
query, key, value = case.arrays()
headwise.attention(query[:, :, :64], key[:, :, :64], value[:, :, :64], return_aux=EVERYTHING)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
output, aux = headwise.attention(query, key, value, return_aux=EVERYTHING, num_threads=int(sys.argv[1]))
answers = (getattr(aux, name) for name in aux.__dataclass_fields__)
kept = output.nbytes + sum(a.nbytes for a in answers if a is not None)
print(peak() - before - kept / 2**20)
"""


def memory(threads: int) -> float:
    """Megabytes beyond inputs and outputs, every statistic asked for, from the peak of a fresh process."""
    done = subprocess.run([sys.executable, "-c", MEMORY, str(threads)], cwd=Path(__file__).parent,
                          capture_output=True, text=True, check=True)  # fmt: skip
    extra = float(done.stdout)
    print(
        f"{MEMORY_CASE.name}: {extra:.0f} MB beyond inputs and outputs  {held(extra, EXTRA_MEMORY_MB, at_most=True)}"
    )
    return extra


def installed(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--case", default="", help='only what contains this text; also "statistics", "memory"'
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    names = ("torch", "onnxruntime", "openvino", "jax", "numpy")
    print(f"{platform.processor() or platform.machine()}, instruction set {_core.isa_names()[-1]}, "
          f"{options.threads} thread(s), float32; {', '.join(installed(name) for name in names)}")  # fmt: skip
    results: dict[str, Any] = {"cases": [race(c, options.threads) for c in CASES if options.case in c.name]}
    if options.case in "statistics":
        results["statistics"] = riders(options.threads)
    if options.case in "memory":
        results["memory_mb"] = memory(options.threads)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
