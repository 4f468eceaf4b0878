"""A check in a process of its own: the function may hang, crash or print without harm to the caller.

python -m headwise.check.child REQUEST.json ANSWER.json
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from headwise.check.subjects.contract import Contract
from headwise.check.subjects.presets import preset, preset_of
from headwise.check.subjects.target import load
from headwise.check.verdict.findings import FAILED, CheckReport, Finding
from headwise.errors import HeadwiseError

_ALL = 12  # calls' worth of time for the whole check, on top of what imports take
_IMPORTS = 60.0  # seconds
_SURROUNDINGS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # every shape is compiled for a few calls only


def check_target(
    target: str, contract: str | None, changes: dict[str, Any], seed: int, time_limit: float
) -> CheckReport:
    """The report on ``module:function``, made in a child process.

    Raises:
        HeadwiseError: the target cannot be imported, or the contract is none.
    """
    request = {
        "target": target,
        "contract": contract,
        "changes": changes,
        "seed": seed,
        "time_limit": time_limit,
    }
    with tempfile.TemporaryDirectory(prefix="headwise-check-") as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-m", "headwise.check.child", str(asked), str(answered)]
        limit = time_limit * _ALL + _IMPORTS
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, env={**_SURROUNDINGS, **os.environ}
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return _dead(target, contract, f"gives no answer within {limit:g} s", seed)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if not answered.is_file():
            return _dead(target, contract, f"ends the process: {_ending(status)}", seed)
        answer = json.loads(answered.read_text(encoding="utf-8"))
    if "refused" in answer:
        raise HeadwiseError(*answer["refused"])
    return CheckReport.from_dict(answer)


def _dead(target: str, contract: str | None, said: str, seed: int) -> CheckReport:
    finding = Finding("called", "called", FAILED, said)
    return CheckReport(target, contract or "default", "could not be called", (finding,), seed)


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The child's side: the report as a dict, or why there is none."""
    from headwise.check.suite import check_attention

    try:
        fn, name = load(request["target"])
        named, changes = request["contract"], request["changes"]
        contract: Contract | None = None
        if named is not None or changes:
            contract = (preset_of(fn) if named is None else preset(named)).but(**changes)
        report = check_attention(
            fn, contract, seed=request["seed"], time_limit=request["time_limit"], name=name
        )
    except HeadwiseError as error:
        return {"refused": [error.argument, error.expected, error.received, error.hint]}
    return report.to_dict()


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with contextlib.redirect_stdout(sys.stderr):
        made = answer(request)
    Path(sys.argv[2]).write_text(json.dumps(made, allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    main()
