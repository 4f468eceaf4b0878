"""What a check found: plain data, JSON both ways, JUnit for other tools, a table for people."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from headwise.errors import HeadwiseError
from headwise.plain.version import __version__

SCHEMA, VERSION = "headwise.check", 1
PASSED, FAILED, NOTE, FOLLOWS, NOT_OFFERED = "passed", "failed", "note", "follows", "not offered"
STATUSES = (PASSED, FAILED, NOTE, FOLLOWS, NOT_OFFERED)


@dataclass(frozen=True)
class Finding:
    """What one rule found.

    Attributes:
        rule, group: its name, and what it is about ("values", "special cases", ...).
        status: "passed"; "failed"; "note" (shown, never fails the function); "follows" (wrong, and explained
            by a mistake that an earlier rule named); "not offered" (the function does not serve it).
        diagnosis: what the function does, in words; "" where the rule passed.
        fault: short name of the mistake, "" where it has none; ``also``: mistakes that are the same by
            arithmetic.
        repair: what it should do.
        evidence: numbers that show it.
        where: the first place that is wrong, or the line that raised.
        error, allowed: largest difference found, and what rounding allows there; None where nothing was
            measured.
        seen: public issues where the same mistake was met.
    """

    rule: str
    group: str
    status: str
    diagnosis: str = ""
    fault: str = ""
    also: tuple[str, ...] = ()
    repair: str = ""
    evidence: str = ""
    where: str = ""
    error: float | None = None
    allowed: float | None = None
    seen: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """Every rule and what it found.

    Attributes:
        name: of what was checked.
        contract: name of the contract.
        calling: how it was called, in words.
        outcomes: one `Finding` per rule, in the order in which they ran.
        seed: of the random inputs.
    """

    name: str
    contract: str
    calling: str
    outcomes: tuple[Finding, ...]
    seed: int = 0
    headwise: str = __version__

    @property
    def passed(self) -> bool:
        """No rule failed, and at least one passed."""
        statuses = {outcome.status for outcome in self.outcomes}
        return PASSED in statuses and not statuses & {FAILED, FOLLOWS}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader has to know: the rules that failed, then the notes."""
        return tuple(
            outcome for status in (FAILED, NOTE) for outcome in self.outcomes if outcome.status == status
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """Short names of the mistakes that were named, each once."""
        return tuple(dict.fromkeys(found.fault for found in self.findings if found.fault))

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "headwise": self.headwise,
            "name": self.name,
            "contract": self.contract,
            "calling": self.calling,
            "seed": self.seed,
            "passed": self.passed,
            "outcomes": [_plain(outcome) for outcome in self.outcomes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CheckReport":
        """The report of a dict that `to_dict` made. Raises `HeadwiseError` for any other."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA or data.get("version") != VERSION:
            received = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise HeadwiseError(
                "report", f"a report of schema {SCHEMA}, version {VERSION}", str(received),
                "headwise check module:function --json report.json makes one",
            )  # fmt: skip
        try:
            outcomes = tuple(_finding(entry) for entry in data["outcomes"])
            names = ("name", "contract", "calling", "seed", "headwise")
            return cls(outcomes=outcomes, **{name: data[name] for name in names})
        except (KeyError, TypeError, ValueError) as error:
            raise HeadwiseError("report", "every part of a report", f"a dict without {error}") from None

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "CheckReport":
        try:
            data = json.loads(text)
        except ValueError as error:
            raise HeadwiseError("report", "JSON", str(error)) from None
        return cls.from_dict(data)

    def to_junit(self) -> str:
        """One test case per rule; notes are in its output, what is not offered is skipped."""
        wrong = [outcome for outcome in self.outcomes if outcome.status in (FAILED, FOLLOWS)]
        skipped = [outcome for outcome in self.outcomes if outcome.status == NOT_OFFERED]
        suite = ElementTree.Element(
            "testsuite", name=f"headwise check {self.name}", tests=str(len(self.outcomes)),
            failures=str(len(wrong)), skipped=str(len(skipped)), errors="0",
        )  # fmt: skip
        for outcome in self.outcomes:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{self.name}.{outcome.group}", name=outcome.rule
            )
            text = "\n".join(filter(None, (outcome.evidence, outcome.where, outcome.repair)))
            if outcome in wrong:
                ElementTree.SubElement(case, "failure", message=_clean(outcome.diagnosis)).text = _clean(text)
            elif outcome in skipped:
                ElementTree.SubElement(case, "skipped", message=_clean(outcome.diagnosis))
            elif outcome.status == NOTE:
                said = f"note: {outcome.diagnosis}\n{text}"
                ElementTree.SubElement(case, "system-out").text = _clean(said)
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"

    def __str__(self) -> str:
        from headwise.render.check.text import to_text

        return to_text(self.to_dict())


def _plain(outcome: Finding) -> dict[str, Any]:
    data = asdict(outcome)
    for name in ("error", "allowed"):
        value = data[name]
        if value is not None and not abs(value) < float("inf"):
            data[name] = None  # JSON has no infinity; the diagnosis says it in words
    return {**data, "also": list(outcome.also), "seen": list(outcome.seen)}


def _finding(entry: Mapping[str, Any]) -> Finding:
    if entry["status"] not in STATUSES:
        raise ValueError(f"status {entry['status']!r}")
    return Finding(**{**entry, "also": tuple(entry["also"]), "seen": tuple(entry["seen"])})


def _clean(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(letter for letter in text if letter >= " " or letter in "\t\n")
