"""The score table as rows, CSV and Parquet."""

import csv
import io
import sys

import numpy as np
import pytest

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect import inspect_qk
from headwise.inspect.report.export import COLUMNS


@pytest.fixture(scope="module")
def report():
    query, key = np.random.default_rng(0).standard_normal((2, 2, 3, 9, 4), dtype=np.float32)
    return inspect_qk(query, key, ids=np.arange(9) % 4, is_causal=True, name="=1+1")


def test_one_row_per_head_and_score(report):
    table = report.table()
    heads = [(layer["layer"], head["head"], head) for layer in report.layers for head in layer["heads"]]
    assert len(table) == sum(len(head["scores"]) for _, _, head in heads)
    assert all(list(row) == list(COLUMNS) for row in table)
    found = {(row["layer"], row["head"], row["score"]): row for row in table}
    for layer, number, head in heads:
        for key, line in head["scores"].items():
            row = found[layer, number, key]
            assert (row["value"], row["null"], row["all_rows"]) == (
                line["value"],
                line["null"],
                line["all_rows"],
            )
            if line["value"] is not None and line["null"] is not None:
                assert row["excess"] == line["value"] - line["null"]
            else:
                assert row["excess"] is None


def test_csv_in_full_precision(report):
    rows = list(csv.DictReader(io.StringIO(report.to_csv(), newline="")))
    assert len(rows) == len(report.table())
    for row, expected in zip(rows, report.table(), strict=True):
        for name in ("value", "null", "excess", "share", "all_rows"):
            assert (float(row[name]) if row[name] else None) == expected[name]
        assert int(row["layer"]) == expected["layer"] and row["score"] == expected["score"]
        assert row["model"] == "'=1+1"  # no spreadsheet takes it for a formula


def test_parquet(report, tmp_path):
    import pyarrow.parquet

    path = tmp_path / "scores.parquet"
    report.write_parquet(path)
    table = pyarrow.parquet.read_table(path)
    assert table.to_pylist() == report.table()
    assert [str(kind) for kind in table.schema.types][:5] == ["string", "int64", "string", "string", "int64"]
    with pytest.raises(HeadwiseError, match="parquet: expected a file that can be written"):
        report.write_parquet(tmp_path / "none" / "x.parquet")


def test_parquet_without_pyarrow_names_the_command(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CapabilityError, match="Hint: pip install pyarrow"):
        report.write_parquet(tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())
