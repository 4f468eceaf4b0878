"""The score table of a report as rows, CSV and Parquet."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.errors import CapabilityError, HeadwiseError

Report = Mapping[str, Any]  # a report as plain data

COLUMNS = {
    "model": str,
    "layer": int,
    "name": str,
    "kind": str,
    "head": int,
    "label": str,
    "score": str,
    "unit": str,
    "value": float,
    "null": float,
    "excess": float,
    "rows": int,
    "share": float,
    "all_rows": float,
}
INSTALL = "pip install pyarrow"


def score_rows(report: Report) -> list[dict[str, Any]]:
    """One row per head and score, under COLUMNS, in the order of the report."""
    units = {score["key"]: score["unit"] for score in report["scores"]}
    rows = []
    for layer in report["layers"]:
        for head in layer["heads"]:
            for key, line in head["scores"].items():
                value, null = line["value"], line["null"]
                rows.append(
                    {
                        "model": report["model"]["name"],
                        "layer": layer["layer"],
                        "name": layer["name"],
                        "kind": layer["kind"],
                        "head": head["head"],
                        "label": head["label"],
                        "score": key,
                        "unit": units.get(key, ""),
                        "value": value,
                        "null": null,
                        "excess": None if value is None or null is None else value - null,
                        "rows": line["rows"],
                        "share": line["share"],
                        "all_rows": line["all_rows"],
                    }
                )
    return rows


def to_csv(report: Report) -> str:
    """RFC 4180 text; numbers in full precision, missing ones empty.

    Text that a spreadsheet would take for a formula is opened with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for row in score_rows(report):
        writer.writerow({name: _calm(value) for name, value in row.items()})
    return out.getvalue()


def _calm(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def write_parquet(report: Report, path: str | Path) -> None:
    """The rows as a Parquet file, missing numbers null.

    Raises:
        CapabilityError: pyarrow is not installed.
        HeadwiseError: the file cannot be written.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CapabilityError(
            "parquet", "pyarrow to be installed", "no module named pyarrow", INSTALL
        ) from None
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    table = pyarrow.Table.from_pylist(score_rows(report), schema=schema)
    try:
        pyarrow.parquet.write_table(table, str(path))
    except OSError as error:
        raise HeadwiseError("parquet", "a file that can be written", f"{path} ({error.strerror})") from None
