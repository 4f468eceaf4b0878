"""The head sweep: products flat, exponentials h·n², d_k falling."""

import pytest

from headwise.costs import cost
from headwise.costs.sweep import Sweep, head_sweep


def test_every_divisor_from_one_to_d_model():
    rows = head_sweep(24, 10).rows
    assert [row.heads for row in rows] == [1, 2, 3, 4, 6, 8, 12, 24]
    assert [row.head_dim for row in rows] == [24, 12, 8, 6, 4, 3, 2, 1]
    assert {row.parameters for row in rows} == {4 * 24**2}
    assert {row.matmul for row in rows} == {8 * 10 * 24**2 + 4 * 10 * 10 * 24}
    assert [row.exponentials for row in rows] == [row.heads * 100 for row in rows]
    for row in rows:
        found = cost(d_model=24, heads=row.heads, seq=10)
        assert (row.matmul, row.exponentials) == (found.flops, found["flops.exponentials"])


def test_softmax_goes_from_one_per_cent_to_most_of_the_work():
    rows = head_sweep(512, 1024).rows
    assert rows[0].softmax_share == pytest.approx(10 / (10 + 1024)) and 0.009 < rows[0].softmax_share < 0.011
    assert (
        rows[-1].heads == 512
        and rows[-1].softmax_share == pytest.approx(5120 / (5120 + 1024))
        and rows[-1].softmax_share > 0.8
    )
    assert head_sweep(512, 7).rows[3].softmax_share == rows[3].softmax_share, "whatever the length"
    assert head_sweep(512, 7, exponential=20).rows[0].softmax_share == pytest.approx(20 / (20 + 1024))


def test_causal_and_batch():
    plain, causal, batch = (
        head_sweep(8, 4).rows[1],
        head_sweep(8, 4, causal=True).rows[1],
        head_sweep(8, 4, batch=3).rows[1],
    )
    assert (plain.exponentials, causal.exponentials, batch.exponentials) == (2 * 16, 2 * 10, 3 * 2 * 16)


def test_a_sweep_survives_json_and_prints():
    sweep = head_sweep(12, 5)
    assert Sweep.from_dict(sweep.to_dict()) == sweep
    lines = str(sweep).splitlines()
    assert lines[0] == "Heads from 1 to d_model = 12"
    assert len([line for line in lines if line.lstrip()[:1].isdigit()]) == 6


def test_a_layer_of_width_one():
    sweep = head_sweep(1, 1)
    assert len(sweep.rows) == 1 and "<svg" in sweep.to_html()
