"""Verify, then time: headwise beside its peers, on the same threads and the same cores.

Everybody runs in a process of its own, which is stopped while another has its turn. Every contender is
first checked against the float64 reference; a wrong one is never timed. Rounds are interleaved and the median
of the round-by-round ratios counts, so a machine whose speed drifts drifts for all. The multiply-add rate of
the processor is measured in each round: the ceiling that all are compared with.

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
    """Seconds of every contender round by round, the multiply-add rates beside them, and the errors found."""
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
            rate = 2 * ready[0].fma_rate() * threads  # where headwise runs: cores differ in their clocks
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


def verdict(value: float, must: float | None, at_most: bool = False) -> str:
    """What was asked and whether it held; nothing where nothing was asked."""
    if must is None:
        return ""
    fine = value <= must if at_most else value >= must
    return f"  {'<=' if at_most else '>='} {must:g} {'held' if fine else 'MISSED'}"


def spread(ratio: dict[str, float], digits: int = 2) -> str:
    low, median, high = (f"{ratio[key]:.{digits}f}" for key in ("low", "median", "high"))
    return f"{median} ({low} - {high})"


def race(case: Case, threads: int) -> dict[str, Any]:
    """One case, everybody who is installed."""
    names = ["headwise", *FUSED, *(OTHERS if case.n <= SLOWEST // 2 else ())]
    times, fma, errors = rounds(names, case, threads)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    found = {name: ratios(times[name], times["headwise"]) for name in names[1:] if name in times}
    peak = statistics.median(fma)
    share = case.flops / medians["headwise"] / peak
    print(f"{case.name}: {share:.0%} of the multiply-add rate{verdict(share, case.of_fma)}")
    for name in names:
        if name not in times:
            print(f"    {name:<14}not run: {errors[name]}")
            continue
        text = f"    {name:<14}{1e3 * medians[name]:>10.3f} ms  relative error {errors[name]:.0e}"
        if name in found:
            text += f"  we are {spread(found[name])}x as fast"
        if name == "torch":
            text += verdict(found[name]["median"], case.over_torch)
        print(text)
    fastest = min((found[name]["median"] for name in FUSED if name in found), default=None)
    if fastest is not None and case.over_best is not None:
        print(f"    {'the fastest':<14}we are {fastest:.2f}x as fast{verdict(fastest, case.over_best)}")
    return {
        "case": case.name,
        "threads": threads,
        "seconds": medians,
        "of_fma": share,
        "fma_gflops": peak / 1e9,
        "ratios": found,
        "errors": errors,
    }


def riders(threads: int) -> dict[str, Any]:
    """What each statistic adds to the plain call, and the same numbers the usual way."""
    case, everything = STATISTICS_CASE, ("headwise, everything", "torch eager, everything")
    times, _, _ = rounds(
        ["headwise", *(f"headwise, {name}" for name in STATISTICS), *everything], case, threads
    )
    print(f"{case.name}: time with statistics over the plain time")
    found = {}
    for name, (_, must) in STATISTICS.items():
        ratio = found[name] = ratios(times[f"headwise, {name}"], times["headwise"])
        print(f"    {name:<44}{spread(ratio, 3)}{verdict(ratio['median'], must, at_most=True)}")
    ours, eager = everything
    ratio = found["all of them"] = ratios(times[ours], times["headwise"])
    print(f"    {'all of them':<44}{spread(ratio, 3)}")
    if eager in times:
        ratio = found["eager"] = ratios(times[eager], times[ours])
        text = "all of them by torch eager: we are"
        print(f"    {text:<44}{spread(ratio, 1)}x as fast{verdict(ratio['median'], OVER_EAGER)}")
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
    command = [sys.executable, "-c", MEMORY, str(threads)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    extra = float(done.stdout)
    text = f"{MEMORY_CASE.name}, all statistics: {extra:.0f} MB beyond inputs and outputs"
    print(text + verdict(extra, EXTRA_MEMORY_MB, at_most=True))
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
    processor, isa = platform.processor() or platform.machine(), _core.isa_names()[-1]
    print(f"{processor}, instruction set {isa}, {options.threads} thread(s), float32")
    print(", ".join(installed(name) for name in names))
    chosen = [case for case in CASES if options.case in case.name]
    results: dict[str, Any] = {"cases": [race(case, options.threads) for case in chosen]}
    if options.case in "statistics":
        results["statistics"] = riders(options.threads)
    if options.case in "memory":
        results["memory_mb"] = memory(options.threads)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
