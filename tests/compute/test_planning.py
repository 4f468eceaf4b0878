"""The plan: what would run, why, and that the environment is obeyed or refused."""

import headwise._core as _core
import numpy as np
import pytest

from headwise import AuxRequest, attention, plan
from headwise.compute import planning
from headwise.errors import CapabilityError, HeadwiseError, ShapeError

X = np.zeros((2, 6, 50, 8), np.float32)
KEY = np.zeros((2, 2, 50, 8), np.float32)


def test_default_is_the_widest_set_and_every_processor(environment, monkeypatch):
    monkeypatch.delenv("HEADWISE_ISA", raising=False)
    monkeypatch.delenv("HEADWISE_NUM_THREADS", raising=False)
    chosen = plan(X, X, X)
    assert chosen.isa == _core.isa_names()[-1]
    assert chosen.num_threads == _core.default_threads() >= 1
    assert "the widest that this processor runs" in chosen.why[0]
    assert "one per processor" in chosen.why[1]


@pytest.mark.parametrize("isa", _core.isa_names())
def test_environment_names_the_instruction_set(environment, isa):
    environment("HEADWISE_ISA", isa)
    chosen = plan(X, X, X)
    assert chosen.isa == isa
    assert "asked for by HEADWISE_ISA" in str(chosen)
    lanes, queries, keys = _core.tile(isa, "float32")
    assert (chosen.lanes, chosen.tile) == (lanes, (queries, keys))
    wide = plan(*(X.astype(np.float64),) * 3)
    assert wide.lanes == _core.tile(isa, "float64")[0]


@pytest.mark.parametrize("isa", ["avx1024", "AVX2", " "])
def test_unknown_instruction_set_is_refused(environment, isa):
    environment("HEADWISE_ISA", isa)
    with pytest.raises(CapabilityError, match="^HEADWISE_ISA: expected one that this processor runs"):
        attention(X, X, X)


def test_environment_names_the_threads_and_the_argument_wins(environment):
    environment("HEADWISE_NUM_THREADS", "3")
    assert plan(X, X, X).num_threads == 3
    assert "3 threads: asked for by HEADWISE_NUM_THREADS." in plan(X, X, X).why
    assert plan(X, X, X, num_threads=1).num_threads == 1
    assert "1 thread: given as num_threads." in plan(X, X, X, num_threads=1).why


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", "٣"])
def test_senseless_thread_numbers_are_refused(environment, number):
    environment("HEADWISE_NUM_THREADS", number)
    with pytest.raises(HeadwiseError, match="^HEADWISE_NUM_THREADS: expected a whole number >= 1"):
        plan(X, X, X)


def test_passes():
    assert plan(X, X, X).passes == ("forward",)
    one_pass = AuxRequest(lse=True, entropy=True, top_k=3, pooled=8, classes=[0] * 50)
    assert plan(X, X, X, return_aux=one_pass).passes == ("forward",)
    received = AuxRequest(received=True)
    assert plan(X, X, X, return_aux=received).passes == ("forward",)
    long = np.broadcast_to(X[:, :, :1], (2, 6, 1_000_000, 8))
    assert plan(X, long, long).passes == ("forward",)
    two = plan(X, long, long, return_aux=received)
    assert two.passes == ("forward", "second pass for received")
    assert "received reads the keys again" in two.why[-1]


def test_printed_plan():
    text = str(plan(X, KEY, KEY, is_causal=True, query_offset=3, num_threads=2))
    lines = text.splitlines()
    assert lines[0] == (
        "problem  batch 2, 6 heads on 2 key heads, 50 queries x 50 keys, d_k 8, d_v 8, float32, "
        "causal from position 3"
    )
    assert [line.split()[0] for line in lines[:6]] == ["problem", "runs", "tiles", "passes", "scratch", "why"]
    assert all(len(line) < 140 and line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    "mask, words", [(np.ones((50, 50), bool), "boolean mask"), (X[0, 0, :, :1], "additive mask")]
)
def test_printed_plan_names_the_mask(mask, words):
    assert words in str(plan(X, X, X, mask))


def test_printed_plan_names_what_is_asked_for():
    request = AuxRequest(entropy=True, top_k=4, relative=(-1, 0), classes=[0] * 50)
    text = str(plan(X, X, X, return_aux=request))
    assert "returns  entropy, top_k 4, relative 2, classes, beside the output" in text.splitlines()
    assert "returns" not in str(plan(X, X, X))


def test_printed_plan_names_every_option():
    text = str(
        plan(
            X, KEY, KEY, is_causal=True, query_offset=[1, 2], attn_bias=X[0, 0, :, :1], window_size=(3, None),
            query_lengths=4, kv_lengths=[1, 2], segment_ids=range(50), softcap=2.0, alibi_slopes=range(6),
            sinks=range(6), head_mask=range(6), dropout_p=0.5, rng=0,
        )
    )  # fmt: skip
    assert text.splitlines()[0].endswith(
        "float32, causal from position of each batch entry, bias, window (3, open), query lengths, "
        "key lengths, segments, soft cap 2.0, ALiBi, sinks, 1 per head, head mask, dropout 0.5"
    )
    assert str(plan(X, X, X)).splitlines()[0].endswith("float32")


def test_scratch_grows_with_threads_and_statistics_but_not_with_the_matrix():
    one = plan(X, X, X, num_threads=1).scratch_bytes
    assert plan(X, X, X, num_threads=3).scratch_bytes == 3 * one > 0
    for request in (AuxRequest(top_k=8), AuxRequest(distance=True), AuxRequest(classes=[5] * 50)):
        assert plan(X, X, X, num_threads=1, return_aux=request).scratch_bytes > one
    long = np.broadcast_to(X[:1, :, :1], (1, 6, 16384, 8))
    assert plan(long, long, long, num_threads=1).scratch_bytes == one
    assert plan(long, long, long, num_threads=8, return_aux=AuxRequest(received=True)).scratch_bytes < 64e6


def test_one_head_is_said_in_the_singular():
    assert "1 head, 50 queries" in str(plan(*(X[0, 0],) * 3))


def test_plan_refuses_what_attention_refuses():
    with pytest.raises(ShapeError, match="^key"):
        plan(X, X[..., :3], X)
    with pytest.raises(CapabilityError, match="^block_table"):
        plan(X, X, X, block_table=[0])
    with pytest.raises(HeadwiseError, match="^softcap"):
        plan(X, X, X, softcap=-3.0)
    with pytest.raises(TypeError, match="flavour"):
        plan(X, X, X, flavour="mild")


def test_plan_takes_torchs_positional_arguments():
    assert plan(X, X, X, None, 0.0, True, 0.5, True).problem.is_causal


def test_settings_are_read_once(environment, monkeypatch):
    environment("HEADWISE_NUM_THREADS", "2")
    assert plan(X, X, X).num_threads == 2
    monkeypatch.setenv("HEADWISE_NUM_THREADS", "5")
    assert plan(X, X, X).num_threads == 2
    planning._settings.cache_clear()
    assert plan(X, X, X).num_threads == 5


def test_a_plan_at_the_prompt_shows_itself_and_no_numbers_of_the_arrays():
    found = plan(X, X, X)
    assert repr(found) == str(found)
    assert len(repr(found)) < 2000
