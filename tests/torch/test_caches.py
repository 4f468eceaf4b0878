"""Caches: whatever the pieces that a sequence comes in, the answers are those of the whole sequence."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise import AuxRequest, HeadwiseError
from headwise.torch import DynamicCache, PagedCache, RollingCache, StaticCache, attention
from headwise.torch.caches.cache import Cache
from tests.torch.layers import layer_of, normal, random_options

LENGTH, WINDOW = 11, 3
KINDS = {
    "dynamic": DynamicCache,
    "static": lambda: StaticCache(LENGTH),
    "rolling": lambda: RollingCache(WINDOW),
    "paged": lambda: PagedCache(block_size=4),
    "paged, fixed": lambda: PagedCache(block_size=3, num_blocks=3 * 4),
}
SCHEMES = [
    {},
    {"rope": True},
    {"alibi": True},
    {"rel_bias": True},
    {"rope": True, "sinks": 2, "softcap": 2.0},
]


def causal_layer(kind, seed=0, **options):
    if kind == "rolling":
        options["window_size"] = (WINDOW, 0)
    sizes = {"embed_dim": 12, "num_heads": 6, "num_kv_heads": 2, "is_causal": True}
    return layer_of(sizes | options, seed).requires_grad_(False)


@st.composite
def pieces(draw, length=LENGTH):
    """Cuts of a sequence into pieces, empty ones among them."""
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=length)))
    return list(zip([0, *cuts], [*cuts, length], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(
    cuts=pieces(),
    seed=st.integers(0, 10**6),
    scheme=st.sampled_from(SCHEMES),
    lead=st.sampled_from([(), (3,), (1, 3)]),
)
def test_any_pieces_give_the_whole(kind, cuts, seed, scheme, lead):
    layer, x = causal_layer(kind, seed, **scheme), normal(*lead, LENGTH, 12, seed=seed)
    cache = KINDS[kind]()
    found = torch.cat([layer(x[..., a:b, :], cache=cache) for a, b in cuts], -2)
    torch.testing.assert_close(found, layer(x), rtol=0, atol=1e-12)
    assert cache.length == LENGTH


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 10**6), scheme=st.sampled_from(SCHEMES))
def test_entries_of_different_lengths(kind, data, seed, scheme):
    """Pieces padded on the left or on the right, some of an entry without any token, and the answers of each
    sequence alone."""
    layer, cache = causal_layer(kind, seed, **scheme), KINDS[kind]()
    x, lead = normal(3, LENGTH, 12, seed=seed), data.draw(st.sampled_from([(3,), (3, 1)]))
    lengths, outputs = [0, 0, 0], [[], [], []]
    for _ in range(data.draw(st.integers(1, 6))):
        counts = [data.draw(st.integers(0, min(4, LENGTH - n))) for n in lengths]
        n = max(counts) + data.draw(st.integers(0, 2))
        piece, keep = torch.full((3, n, 12), 50.0, dtype=torch.float64), torch.zeros(3, n, dtype=torch.bool)
        for i, count in enumerate(counts):
            rows = slice(n - count, n) if data.draw(st.booleans()) else slice(0, count)
            piece[i, rows], keep[i, rows] = x[i, lengths[i] : lengths[i] + count], True
        # Where nothing is padded, the mask may be left out.
        given_mask = None if keep.all() and data.draw(st.booleans()) else keep.reshape(*lead, n)
        found = layer(piece.reshape(*lead, n, 12), key_mask=given_mask, cache=cache).reshape(3, n, 12)
        for i, count in enumerate(counts):
            outputs[i].append(found[i, keep[i]])
            lengths[i] += count
    for i, n in enumerate(lengths):
        expected = layer(x[i, :n])
        torch.testing.assert_close(torch.cat(outputs[i]), expected, rtol=0, atol=1e-12)
    assert torch.broadcast_to(torch.as_tensor(cache.length), lead).flatten().tolist() == lengths


@pytest.mark.parametrize("kind", KINDS)
def test_float32_to_one_millionth(kind):
    layer, x = causal_layer(kind, rope=True).float(), torch.randn(3, LENGTH, 12)
    layer.reset_parameters()
    cache, whole = KINDS[kind](), layer(x)
    found = torch.cat([layer(x[:, a:b], cache=cache) for a, b in ((0, 1), (1, 6), (6, 7), (7, 11))], 1)
    assert (found - whole).abs().max() < 1e-6


@pytest.mark.parametrize("seed", range(40))
def test_random_layers(seed):
    """Every option of the layer beside a cache, statistics included."""
    options = random_options(seed, causal=True, window=False)
    layer = layer_of(options, seed).requires_grad_(False)
    x = normal(2, 9, layer.embed_dim, seed=seed)
    mask, bias = torch.rand(9, 9) < 0.8, normal(layer.num_heads, 9, 9)
    request = AuxRequest(lse=True, entropy=True, top_k=2, sink_mass=1)
    expected, aux = layer(x, attn_mask=mask, attn_bias=bias, return_aux=request)
    cache, rows = DynamicCache(), []
    for a, b in ((0, 4), (4, 5), (5, 9)):
        piece = layer(
            x[:, a:b], cache=cache, attn_mask=mask[a:b, :b], attn_bias=bias[:, a:b, :b], return_aux=request
        )
        rows.append(piece)
    torch.testing.assert_close(torch.cat([row for row, _ in rows], 1), expected, rtol=0, atol=1e-12)
    for name, whole in aux.asked().items():
        part = torch.cat([getattr(said, name) for _, said in rows], 2)
        torch.testing.assert_close(part, whole, rtol=0, atol=1e-12, equal_nan=True)


def test_masks_over_all_tokens_beside_a_rolling_cache():
    layer, x = causal_layer("rolling"), normal(2, LENGTH, 12)
    mask, bias = torch.rand(LENGTH, LENGTH) < 0.8, normal(6, LENGTH, LENGTH)
    cache, rows = RollingCache(WINDOW), []
    for i in range(LENGTH):
        options = {"attn_mask": mask[i : i + 1, : i + 1], "attn_bias": bias[:, i : i + 1, : i + 1]}
        rows.append(layer(x[:, i : i + 1], cache=cache, **options))
    expected = layer(x, attn_mask=mask, attn_bias=bias)
    torch.testing.assert_close(torch.cat(rows, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_real_tokens_only_is_no_mask(kind):
    layer, x, cache = causal_layer(kind), normal(2, 4, 12), KINDS[kind]()
    layer(x, key_mask=torch.ones(2, 4, dtype=torch.bool), cache=cache)
    assert cache.length == 4 and isinstance(cache.length, int)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ragged", [False, True])
def test_reorder_truncate_and_reset(kind, ragged):
    layer, cache = causal_layer(kind, rope=True), KINDS[kind]()
    x = normal(3, LENGTH, 12)
    lengths = [5, 3, 4] if ragged else [5, 5, 5]
    keep = torch.arange(5) < torch.tensor(lengths)[:, None]
    layer(x[:, :5], key_mask=keep, cache=cache)
    kept = copy.deepcopy(cache)
    # A draft of three tokens is rejected.
    layer(x[:, 5:8], cache=cache)
    if kind == "rolling":
        with pytest.raises(HeadwiseError, match="length: expected a length whose window is still held"):
            cache.truncate(1)
    else:
        cache.truncate(2)
        assert torch.as_tensor(cache.length).max() == 2
        found = layer(x[:, 2:4], cache=cache)
        torch.testing.assert_close(found, layer(x)[:, 2:4], rtol=0, atol=1e-12)
    # Beams 2, 0, 0 go on from here, each with a token of its own.
    index = [2, 0, 0, 1]
    kept.reorder(torch.tensor(index))
    tokens = normal(4, 2, 12, seed=9)
    found = layer(tokens, cache=kept)
    for i, entry in enumerate(index):
        expected = layer(torch.cat([x[entry, : lengths[entry]], tokens[i]]))[-2:]
        torch.testing.assert_close(found[i], expected, rtol=0, atol=1e-12)
    kept.reset()
    assert kept.length == 0
    torch.testing.assert_close(layer(x[:2, :4], cache=kept), layer(x[:2, :4]), rtol=0, atol=1e-12)


def test_a_rolled_cache_of_two_leading_axes_forgets_a_draft():
    """Entries that have let go of different numbers of tokens, in a batch of two axes."""
    layer, cache, x = causal_layer("rolling"), RollingCache(WINDOW), normal(2, 2, 30, 12)
    behind = torch.tensor([[0, 1], [2, 3]])
    for i in range(20):
        layer(x[..., i : i + 1, :], cache=cache, key_mask=(i >= behind)[..., None])
    layer(x[..., 20:21, :], cache=cache)
    with pytest.raises(HeadwiseError, match="length: expected a length whose window is still held"):
        cache.truncate(3)
    cache.truncate(18)  # of 21, 20, 19 and 18 tokens
    assert cache.length.tolist() == [[18, 18], [18, 18]]
    entries = [(a, b, int(behind[a, b])) for a in range(2) for b in range(2)]
    token = torch.stack([x[a, b, first + 18] for a, b, first in entries]).reshape(2, 2, 1, 12)
    found = layer(token, cache=cache)
    for a, b, first in entries:
        expected = layer(x[a, b, first : first + 19])[-1]
        torch.testing.assert_close(found[a, b, 0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_fails_leaves_the_cache_as_it_was(kind):
    layer, cache, x = causal_layer(kind, rope=True), KINDS[kind](), normal(2, 8, 12)
    layer(x[:, :3], cache=cache)
    with pytest.raises(HeadwiseError):
        layer(x[:, 3:6], cache=cache, head_mask=torch.ones(5))
    with pytest.raises(HeadwiseError):
        layer(x[:, 3:6], cache=cache, attn_mask=torch.ones(3, 3, dtype=torch.bool))
    assert cache.length == 3
    found = torch.cat([layer(x[:, 3:6], cache=cache), layer(x[:, 6:], cache=cache)], 1)
    torch.testing.assert_close(found, layer(x)[:, 3:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_copies_go_on_by_themselves(kind, way):
    layer, cache, x = causal_layer(kind), KINDS[kind](), normal(2, 8, 12)
    layer(x[:, :5], cache=cache)
    other = way(cache)
    first = layer(x[:, 5:], cache=cache)
    torch.testing.assert_close(layer(x[:, 5:], cache=other), first, rtol=0, atol=0)
    assert repr(other) == repr(cache)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rolling", [False, True])
def test_gradients_through_pieces(padded, rolling):
    """Training over pieces: the gradients are those of the whole sequence."""
    options = {"embed_dim": 12, "num_heads": 6, "num_kv_heads": 2, "is_causal": True, "rope": True}
    layer = layer_of(options | ({"window_size": (WINDOW, 0)} if rolling else {}))
    x, keep = normal(2, 8, 12), torch.ones(2, 8, dtype=torch.bool)
    if padded:
        keep[1, 6:] = False
    upstream = normal(2, 8, 12, seed=3) * keep[..., None]
    (layer(x, key_mask=keep) * upstream).sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    cache = RollingCache(WINDOW) if rolling else DynamicCache()
    parts = [
        layer(x[:, a:b], key_mask=keep[:, a:b] if padded else None, cache=cache) * upstream[:, a:b]
        for a, b in ((0, 3), (3, 4), (4, 8))
    ]
    torch.cat(parts, 1).sum().backward()
    for parameter, gradient in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=1e-10)
    # What a training pass left behind serves inference too, and is not written over.
    with torch.no_grad():
        layer(x[:, :2], cache=cache)


def test_pieces_made_in_inference_mode_go_on_outside_of_it():
    for kind, make in KINDS.items():
        layer, cache, x = causal_layer(kind), make(), normal(2, 8, 12)
        with torch.inference_mode():
            layer(x[:, :5], cache=cache)
        with torch.no_grad():
            found = layer(x[:, 5:], cache=cache)
        torch.testing.assert_close(found, layer(x)[:, 5:], rtol=0, atol=1e-12)


def test_room():
    """Doubling, fixed and bounded: what each kind holds after 100 tokens one by one."""
    one = {"key": torch.zeros(2, 3, 1, 4), "value": torch.zeros(2, 3, 1, 5)}
    per_token = 2 * 3 * (4 + 5) * 4
    caches = DynamicCache(), StaticCache(120), RollingCache(16), PagedCache(block_size=8)
    for cache in caches:
        most = 0
        for _ in range(100):
            cache.append(**one)
            most = max(most, cache.nbytes)
        assert cache.nbytes == most
    assert [cache.nbytes // per_token for cache in caches] == [128, 120, 32, 128]
    assert caches[3].blocks_used == 2 * 13
    # A long first piece does not stay.
    rolling = RollingCache(16)
    long = {name: x.expand(-1, -1, 500, -1) for name, x in one.items()}
    rolling.append(**long)
    rolling.append(**one)
    assert rolling.nbytes // per_token == 32


def test_pages_are_shared_until_they_are_written():
    cache = PagedCache(block_size=4)
    cache.append(normal(1, 2, 10, 3), normal(1, 2, 10, 3))
    assert cache.blocks_used == 3
    cache.reorder([0, 0, 0])
    assert cache.blocks_used == 3 and cache.length == 10
    before = cache.append(normal(3, 2, 1, 3, seed=2), normal(3, 2, 1, 3))
    assert cache.blocks_used == 2 + 3  # the two full pages are still shared
    assert torch.equal(before.key[0, :, :10], before.key[2, :, :10])
    assert not torch.equal(before.key[0, :, 10], before.key[2, :, 10])
    cache.reorder([1])
    assert cache.blocks_used == 3 and len(cache.tables) == 1
    cache.truncate(4)
    assert cache.blocks_used == 1


def test_use_without_a_layer():
    cache, q, k = DynamicCache(), normal(2, 4, 6, 8), normal(2, 2, 6, 8, seed=2)
    rows = []
    for a, b in ((0, 2), (2, 6)):
        seen = cache.append(k[:, :, a:b], k[:, :, a:b])
        rows.append(
            attention(q[:, :, a:b], seen.key, seen.value, is_causal=True, query_offset=seen.query_offset)
        )
    torch.testing.assert_close(torch.cat(rows, 2), attention(q, k, k, is_causal=True), rtol=0, atol=1e-12)


def test_a_prefix_may_see_itself():
    """A prefix read in both directions and a causal continuation, as prefix language models have it."""
    layer, x = causal_layer("dynamic"), normal(2, 8, 12)
    cache = DynamicCache()
    found = torch.cat([layer(x[:, :5], cache=cache, is_causal=False), layer(x[:, 5:], cache=cache)], 1)
    visible = torch.ones(8, 8).tril().bool()
    visible[:5, :5] = True
    torch.testing.assert_close(found, layer(x, attn_mask=visible, is_causal=False), rtol=0, atol=1e-12)


def test_the_base_class_says_what_a_cache_of_another_kind_has_to_bring():
    with pytest.raises(NotImplementedError):
        Cache().append(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))


def test_how_they_look():
    cache = DynamicCache()
    keep = torch.tensor([[True, True], [True, False]])
    cache.append(torch.zeros(2, 1, 2, 4), torch.zeros(2, 1, 2, 4), keep)
    assert repr(cache) == "DynamicCache(length=[2, 1])"
    assert repr(StaticCache(8)) == "StaticCache(length=0, max_length=8)"
    assert repr(RollingCache(8)) == "RollingCache(length=0, window=8)"
    assert repr(PagedCache()) == "PagedCache(length=0, blocks_used=0, block_size=16)"
