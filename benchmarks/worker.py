"""One contender in a process of its own, stopped (SIGSTOP) while it is not its turn.

Thread pools that spin after a call would otherwise take the core from whoever runs next. A worker is started
as ``python worker.py`` and speaks one JSON object a line: first the task, then one line for each turn.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cases import Case

TOLERANCE = 1e-6  # relative Frobenius error of float32 on N(0, 1) inputs, for everybody
CHECKED_ROWS = 64  # rows of every head compared with the reference, spread over the sequence


class Worker:
    """A contender as the referee sees it. ``refusal`` says why it can't run."""

    def __init__(self, name: str, case: Case, threads: int) -> None:
        self.name = name
        # Libraries of linear algebra read their thread counts when they are loaded.
        counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=Path(__file__).parent, env=os.environ | counts,
        )  # fmt: skip
        answer = self._ask({"name": name, "case": asdict(case), "threads": threads})
        self.error: float | None = answer.get("error")
        self.refusal: str | None = answer.get("refusal")
        self._process.send_signal(signal.SIGSTOP)

    def turn(self) -> float:
        """Seconds of one call."""
        return self._answer({}, "seconds")

    def fma_rate(self) -> float:
        """Multiply-adds per second of one thread, on the core that this contender runs on."""
        return self._answer({"fma": True}, "rate")

    def _answer(self, question: dict[str, Any], name: str) -> float:
        self._process.send_signal(signal.SIGCONT)
        found: float = self._ask(question)[name]
        self._process.send_signal(signal.SIGSTOP)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"refusal": "its process ended"}
        return answer


def relative_error(case: Case, output: Any) -> float:
    """Relative Frobenius error against float64, over a sample of rows."""
    import numpy as np

    from headwise.reference import reference_attention

    query, key, value = case.arrays()
    rows = np.unique(np.linspace(0, case.n - 1, CHECKED_ROWS).astype(int))
    visible = np.arange(case.n) <= rows[:, None] if case.causal else case.mask()
    expected = reference_attention(query[:, :, rows], key, value, visible)[0]
    return float(np.linalg.norm(np.asarray(output)[:, :, rows] - expected) / np.linalg.norm(expected))


def serve() -> None:
    """The other side of the pipe."""
    # Whatever a library prints goes nowhere: stdout carries the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    task = json.loads(sys.stdin.readline())
    case, threads = Case(**task["case"]), task["threads"]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    try:
        from peers import PEERS

        call = PEERS[task["name"]](case, threads)
        reply({"error": relative_error(case, call())})
    except (ImportError, NotImplementedError) as why:
        reply({"refusal": str(why)})
        return
    for line in sys.stdin:
        if json.loads(line).get("fma"):
            from headwise import _core

            reply({"rate": _core.fma_rate(seconds=0.05)})
            continue
        start = time.perf_counter()
        for _ in range(case.calls):
            call()
        reply({"seconds": (time.perf_counter() - start) / case.calls})


if __name__ == "__main__":
    serve()
