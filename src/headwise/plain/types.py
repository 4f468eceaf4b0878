"""The types that arrays have in signatures."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# An array of NumPy, torch or JAX, or anything with DLPack or a buffer: guests have no type in common.
AnyArray: TypeAlias = Any

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]
