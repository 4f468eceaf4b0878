"""The inspector on a long real text: its time beside the model's plain forward pass, its memory, its page.

SmolLM2-135M reads the first tokens of Python's own manual (``pydoc_data.topics``). Each round times the plain
forward pass, then the full score card, one after the other; the median of the rounds' ratios is reported.
"""

import argparse
import gc
import pydoc_data.topics
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from headwise.inspect import inspect_heads
from headwise.inspect.load.models import load_model
from headwise.inspect.load.tokens import encode

RATIOS = {"torch": 1.4, "kernel": 1.1}  # the card's time over the plain pass, at most
EXTRA_BYTES = 500e6
PAGE_BYTES = 5e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compute", nargs="*", default=list(RATIOS))
    asked = parser.parse_args()
    loaded = load_model("smollm2")
    prose = "\n\n".join(pydoc_data.topics.topics.values())
    encoded = encode(loaded.tokenizer, prose, max_tokens=asked.tokens)
    print(f"{loaded.source}, {asked.tokens} tokens, {torch.get_num_threads()} threads of torch")
    failed = [compute for compute in asked.compute if not measure(loaded, encoded, compute, asked.rounds)]
    return 1 if failed else 0


def measure(loaded: Any, encoded: Any, compute: str, rounds: int) -> bool:
    """Print the paired times of one way to compute the output; whether all bounds hold."""
    ratios, extra, report = [], 0.0, None
    for _ in range(rounds):
        start_peak()
        begin = time.perf_counter()
        with torch.no_grad():
            loaded.model(**encoded.inputs, use_cache=False, logits_to_keep=1)
        plain = time.perf_counter() - begin
        plain_peak = peak()
        gc.collect()
        start_peak()
        begin = time.perf_counter()
        report = inspect_heads(
            loaded.model, encoded.inputs, encoded.tokens, special=encoded.special, compute=compute
        )
        card = time.perf_counter() - begin
        extra = max(extra, peak() - plain_peak)
        ratios.append(card / plain)
        times = f"plain {plain:6.2f} s   card {card:6.2f} s   ratio {card / plain:.2f}"
        print(f"  {compute:<7} {times}", flush=True)
    assert report is not None
    page = len(report.to_html().encode())
    ratio = statistics.median(ratios)
    print(
        f"  {compute:<7} median ratio {ratio:.2f} (at most {RATIOS[compute]}), "
        f"extra peak {extra / 1e6:.0f} MB, page {page / 1e6:.2f} MB, "
        f"max |delta| {report.check['max_abs_difference']:.2g}"
    )
    return ratio <= RATIOS[compute] and extra <= EXTRA_BYTES and page <= PAGE_BYTES


def start_peak() -> None:
    """Forget the process's highest memory use (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """Highest resident memory since then, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


if __name__ == "__main__":
    sys.exit(main())
