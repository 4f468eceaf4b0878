"""The checker: is this attention right, and if not, which mistake does it make?

    from headwise import check_attention
    print(check_attention(my_attention))

`check_attention` asks a function, `check_layer` a torch layer, small named rules; both return a
`CheckReport`. `Contract` says how a function is called and which conventions it follows.
`parametrize_with_checks` makes every rule a test of pytest.
"""

from headwise.check.cases.case import Case
from headwise.check.pytest_plugin import parametrize_with_checks
from headwise.check.subjects.contract import FEATURES, Contract
from headwise.check.subjects.presets import PRESETS
from headwise.check.suite import RULES, check_attention
from headwise.check.torch_layer import check_layer
from headwise.check.verdict.findings import CheckReport, Finding

__all__ = [
    "FEATURES",
    "PRESETS",
    "RULES",
    "Case",
    "CheckReport",
    "Contract",
    "Finding",
    "check_attention",
    "check_layer",
    "parametrize_with_checks",
]
