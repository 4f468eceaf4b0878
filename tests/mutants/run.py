"""Do the tests notice? Each classic fault stands in for the package, and tests have to fail: `make mutants`.

Prints the first test that noticed each fault, and ends with status 1 if one survives or the right stand-in
fails.
"""

import contextlib
import io
import sys

import pytest

from tests.mutants.plain import FAULTS, attention_with

TESTS = ["tests/test_regressions.py", "tests/kernel/test_kernels_options.py"]
CHOSEN = "not bits"  # the stand-in has one path for everything: its bits say nothing


class StandIn:
    """Puts an attention in the place of the package's own in every test module, and notes what fails."""

    def __init__(self, attention):
        self.attention = attention
        self.failed = []

    def pytest_collection_finish(self):
        for name, module in list(sys.modules.items()):
            if name.startswith("tests.") and hasattr(module, "attention"):
                module.attention = self.attention

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid.removeprefix("tests/"))


def noticed_by(fault):
    """The first test that fails, or None."""
    stand_in = StandIn(attention_with(fault))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-k", CHOSEN]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = pytest.main([*options, *TESTS], plugins=[stand_in])
    assert status in (0, 1), f"pytest ended with status {status}"
    return stand_in.failed[0] if stand_in.failed else None


def main():
    wrong = noticed_by(None)
    print(f"{'(no fault)':<26}{'passes' if wrong is None else 'FAILS ' + wrong}", flush=True)
    survivors = []
    for fault in FAULTS:
        name = noticed_by(fault)
        print(f"{fault:<26}{name or 'SURVIVES'}", flush=True)
        survivors += [] if name else [fault]
    print(f"{len(FAULTS) - len(survivors)} of {len(FAULTS)} faults noticed")
    return 1 if survivors or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
