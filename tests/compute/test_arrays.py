"""Arrays in and out: whose array it is, no copy on the way in, the same kind on the way out."""

import array as buffers

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from headwise import attention
from headwise.compute.arrays import integers, take
from headwise.compute.request import AuxRequest
from headwise.errors import CapabilityError, DtypeError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


class Lent:
    """An array of some other library: nothing but the DLPack protocol."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


def taken(array, **others):
    views, restore = take({"query": array, **others})
    return views[0], restore


def address(view):
    return view.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_is_passed_through(dtype):
    array = X.astype(dtype)
    view, restore = taken(array)
    assert view is array
    assert restore(view) is view


def test_numpy_views_keep_their_strides():
    for array in (X[:, ::-1], X[..., ::2], X.transpose(2, 0, 1), np.broadcast_to(X, (5, 2, 3, 4))):
        view, _ = taken(array)
        assert view is array


def test_torch_memory_is_shared_and_torch_comes_back():
    tensor = torch.from_numpy(X.copy()).transpose(0, 1)
    view, restore = taken(tensor)
    assert address(view) == tensor.data_ptr()
    assert view.strides == tuple(4 * s for s in tensor.stride())
    answer = restore(np.ones((2, 3), np.float32))
    assert isinstance(answer, torch.Tensor)
    assert answer.dtype == torch.float32


def test_torch_parameter_without_recorded_gradients():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    with torch.no_grad():
        view, _ = taken(parameter)
    assert address(view) == parameter.data_ptr()
    view, _ = taken(parameter.detach())
    assert address(view) == parameter.data_ptr()


def test_torch_boolean_mask_is_shared():
    mask = torch.ones(3, 3, dtype=torch.bool)
    views, _ = take({"query": torch.ones(3, 2), "attn_mask": mask})
    assert views[1].dtype == np.bool_
    assert address(views[1]) == mask.data_ptr()


def test_jax_memory_is_shared_and_jax_comes_back():
    array = jnp.asarray(X)
    view, restore = taken(array)
    assert address(view) == array.unsafe_buffer_pointer()
    answer = restore(np.ones((2, 3), np.float32))
    assert isinstance(answer, jax.Array)
    assert answer.dtype == jnp.float32


def test_other_libraries_come_in_by_dlpack_and_leave_as_numpy():
    view, restore = taken(Lent(X.copy()))
    np.testing.assert_array_equal(view, X)
    assert isinstance(restore(view), np.ndarray)


def test_buffers_come_in():
    numbers = buffers.array("f", [1.0, 2.0, 3.0])
    view, _ = taken(memoryview(numbers))
    np.testing.assert_array_equal(view, [1, 2, 3])
    numbers[0] = 9.0
    assert view[0] == 9.0


def test_none_passes_only_where_it_may():
    views, _ = take({"query": X, "attn_mask": None})
    assert views[1] is None
    with pytest.raises(DtypeError, match="value: .*received None"):
        take({"query": X, "value": None})


def test_numpy_mask_beside_any_kind():
    mask = np.ones((3, 3), bool)
    for query in (torch.ones(3, 2), jnp.ones((3, 2))):
        views, _ = take({"query": query, "attn_mask": mask})
        assert views[1] is mask


def test_subclass_becomes_a_plain_array(tmp_path):
    mapped = np.memmap(tmp_path / "q.bin", np.float32, "w+", shape=(3, 4))
    view, _ = taken(mapped)
    assert type(view) is np.ndarray
    assert address(view) == address(mapped)


def test_addresses_off_the_grid_are_copied():
    record = np.zeros(5, np.dtype([("flag", np.int8), ("x", np.float64)], align=False))
    record["x"] = np.arange(5)
    assert not record["x"].flags.aligned
    view, _ = taken(record["x"])
    assert view.flags.aligned
    np.testing.assert_array_equal(view, np.arange(5))


@pytest.mark.parametrize(
    "array, error",
    [
        ([[1.0]], DtypeError),
        (3.0, DtypeError),
        ("text", DtypeError),
        (object(), DtypeError),
        (X.astype(np.int32), DtypeError),
        (X.astype(np.complex64), DtypeError),
        (X.astype(object), DtypeError),
        (X.astype(np.longdouble), DtypeError),
        (X > 0, DtypeError),
        (X.astype(X.dtype.newbyteorder()), DtypeError),
        (np.ma.masked_array(X, X > 3), DtypeError),
        (Lent(X, (2, 0)), DtypeError),
        (X.astype(np.float16), CapabilityError),
        (torch.ones(2, 3, dtype=torch.int64), DtypeError),
        (torch.ones(2, 3, device="meta"), DtypeError),
        (torch.eye(3).to_sparse(), DtypeError),
        (torch.ones(2, 3, dtype=torch.bfloat16), CapabilityError),
        (torch.ones(2, 3, dtype=torch.float16), CapabilityError),
        (torch.ones(2, 3, requires_grad=True), CapabilityError),
        (jnp.ones((2, 3), jnp.bfloat16), CapabilityError),
        (jnp.ones((2, 3), jnp.int32), DtypeError),
        (jax.random.key(0), DtypeError),
    ],
    ids=lambda case: case.__name__ if isinstance(case, type) else type(case).__name__,
)
def test_refused(array, error):
    with pytest.raises(error, match="^query: expected"):
        taken(array)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap], ids=["jit", "grad", "vmap"])
def test_traced_jax_arrays_are_refused(transform):
    def function(x):
        return attention(x, x, x).sum()

    with pytest.raises(CapabilityError, match="outside jax.jit"):
        transform(function)(jnp.ones((3, 4)) if transform is not jax.vmap else jnp.ones((2, 3, 4)))


def test_batched_torch_tensors_are_refused():
    with pytest.raises(CapabilityError, match="query: expected a plain torch tensor"):
        torch.vmap(lambda x: attention(x, x, x))(torch.ones(2, 3, 4))


MIXED = [
    (X, torch.ones(2, 3, 4)), (torch.ones(2, 3, 4), X), (X, jnp.ones((2, 3, 4))), (jnp.ones((2, 3, 4)), X),
    (torch.ones(2, 3, 4), jnp.ones((2, 3, 4))), (jnp.ones((2, 3, 4)), torch.ones(2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("query, key", MIXED, ids=lambda array: type(array).__name__)
def test_mixed_kinds_are_refused_and_the_hint_repairs_them(query, key):
    with pytest.raises(DtypeError, match="^key: expected .*, as query is") as caught:
        take({"query": query, "key": key})
    repaired = eval(caught.value.hint, {"np": np, "torch": torch, "jnp": jnp, "key": key})
    views, _ = take({"query": query, "key": repaired})
    np.testing.assert_array_equal(views[1], np.asarray(key))


def test_mixed_dtypes_are_refused():
    with pytest.raises(DtypeError, match="key: expected float32, the dtype of query; received float64"):
        take({"query": X, "key": X.astype(np.float64)})


def test_foreign_masks_are_refused():
    with pytest.raises(DtypeError, match="attn_mask: expected a NumPy array, as query is"):
        take({"query": X, "attn_mask": torch.ones(3, 3, dtype=torch.bool)})


@pytest.mark.parametrize(
    "ids",
    [[5, 7, 5], (5, 7, 5), np.array([5, 7, 5], np.int32), torch.tensor([5, 7, 5]), jnp.array([5, 7, 5]),
     np.array([5, 7, 5], np.uint64)],
    ids=lambda ids: type(ids).__name__,
)  # fmt: skip
def test_integers(ids):
    numbers = integers("matches", ids)
    assert numbers.dtype == np.int64
    np.testing.assert_array_equal(numbers, [5, 7, 5])


def test_no_integers_are_an_empty_array():
    assert integers("matches", []).dtype == np.int64


@pytest.mark.parametrize(
    "ids",
    [[0.5], ["a"], [[1, 2], [3]], np.array([2.0]), np.array([2**63], np.uint64), 7.0, np.array([True])],
    ids=["floats", "strings", "ragged", "float array", "too large", "number", "booleans"],
)  # fmt: skip
def test_not_integers(ids):
    with pytest.raises(DtypeError, match="^matches: expected"):
        integers("matches", ids)


ALL = AuxRequest(lse=True, argmax=True, top_k=2, matches=[1, 2, 1, 3, 2], received=True)


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_whole_call_stays_in_the_callers_kind(kind):
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(3, 5, d)).astype(np.float32) for d in (4, 4, 2))
    make = {"torch": torch.from_numpy, "jax": jnp.asarray}[kind]
    owner = {"torch": torch.Tensor, "jax": jax.Array}[kind]
    expected, expected_aux = attention(query, key, value, return_aux=ALL)
    output, aux = attention(make(query), make(key), make(value), return_aux=ALL)
    assert isinstance(output, owner)
    np.testing.assert_array_equal(np.asarray(output), expected)
    for name, answer in aux.asked().items():
        assert isinstance(answer, owner), name
        np.testing.assert_array_equal(np.asarray(answer), getattr(expected_aux, name), err_msg=name)


def test_jax_float64_stays_float64():
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3)))
        output = attention(x, x, x)
        assert output.dtype == jnp.float64
        np.testing.assert_array_equal(np.asarray(output), attention(*[np.asarray(x)] * 3))


def test_inputs_are_not_written_to():
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(2, 6, 4)).astype(np.float32) for _ in range(3)]
    mask = rng.random((6, 6)) < 0.5
    before = [a.copy() for a in (*arrays, mask)]
    for a in (*arrays, mask):
        a.flags.writeable = False
    attention(*arrays, mask, return_aux=AuxRequest(received=True, pooled=2, top_k=3))
    for a, b in zip((*arrays, mask), before, strict=True):
        np.testing.assert_array_equal(a, b)
