"""Positions as torch modules: sinusoidal and learned embeddings, rotary features.

The numbers are those of ``headwise.positions``: angles are float64 at every position and rounded once. No
module keeps them in a buffer, so ``meta`` construction, ``to`` and state dicts have nothing to lose.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.types import Device

from headwise.compute.positions.scaling import RotaryScaling, rotary_frequencies
from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.plain.values import is_whole, shown
from headwise.torch.arguments import positive
from headwise.torch.caches.cache import Offset


def positions_from(offset: Offset, n: int, device: torch.device | None = None) -> Tensor:
    """Positions of n tokens that begin at ``offset``: ``(n,)``, or ``(*lead, n)`` for offsets per entry."""
    steps = torch.arange(n, device=device)
    return steps + (offset.to(device)[..., None] if isinstance(offset, Tensor) else offset)


def angles_of(positions: Tensor, frequencies: NDArray[np.float64]) -> Tensor:
    """Angles ``(..., n, width / 2)`` in float64; on a device without float64, computed on the CPU."""
    home = positions.device if positions.device.type != "mps" else torch.device("cpu")
    rates = torch.as_tensor(frequencies, dtype=torch.float64, device=home)
    return positions.to(home, torch.float64)[..., None] * rates


def check_positions(name: str, positions: Tensor | None, shape: tuple[int, ...]) -> None:
    """Positions given by the caller: whole numbers that broadcast to ``shape``, ``(*lead, n)``.

    Raises:
        DtypeError, ShapeError: they are not.
    """
    if positions is None:
        return
    whole = isinstance(positions, Tensor) and not (
        positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool
    )
    if not whole:
        received = str(positions.dtype) if isinstance(positions, Tensor) else shown(positions)
        raise DtypeError(name, "a tensor of whole numbers", received, "torch.arange(n), or one row per entry")
    given = tuple(positions.shape)
    fits = len(given) <= len(shape) and all(
        a in (1, b) for a, b in zip(reversed(given), reversed(shape), strict=False)
    )
    if not fits:
        hint = "torch.arange(n) serves every entry"
        raise ShapeError(name, f"a shape that broadcasts to {shape}", f"shape {given}", hint)


class SinusoidalPositions(nn.Module):
    """Adds sinusoidal position embeddings (Vaswani et al. 2017, section 3.5) to ``(..., n, width)``.

    No parameters; any length. See ``headwise.positions.sinusoidal`` for the formula.

    Args:
        width: d_model.
        base: of the wavelengths.

    Raises:
        HeadwiseError: ``width`` or ``base`` is not positive.
    """

    def __init__(self, width: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.width, self.base = positive("width", width), base
        self._frequencies = rotary_frequencies(width, base, None)[0]

    def forward(self, x: Tensor, positions: Tensor | None = None, *, offset: Offset = 0) -> Tensor:
        """``x`` plus the embeddings of its positions.

        Args:
            x: ``(..., n, width)``.
            positions: whole numbers that broadcast to ``(..., n)``; None means offset, offset + 1, ...
            offset: position of the first token, such as ``cache.length``; one number, or one per entry.
        """
        check_width(x, self.width)
        check_positions("positions", positions, tuple(x.shape[:-1]))
        at = positions_from(offset, x.shape[-2], x.device) if positions is None else positions
        angles = angles_of(at, self._frequencies)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., : self.width]
        return x + waves.to(x.device, x.dtype)

    def extra_repr(self) -> str:
        return f"{self.width}, base={self.base}"


class LearnedPositions(nn.Module):
    """Adds one learned embedding per position to ``(..., n, width)``.

    Args:
        max_length: number of positions.
        width: d_model.
        device, dtype: of the parameter ``weight``, ``(max_length, width)``, normal with deviation 0.02.

    Raises:
        HeadwiseError: a size that is not positive.
    """

    def __init__(
        self, max_length: int, width: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.max_length, self.width = positive("max_length", max_length), positive("width", width)
        self.weight = nn.Parameter(torch.empty(max_length, width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, positions: Tensor | None = None, *, offset: Offset = 0) -> Tensor:
        """``x`` plus the embeddings of its positions; arguments as for :class:`SinusoidalPositions`.

        Raises:
            ShapeError: more tokens than positions.
        """
        check_width(x, self.width)
        check_positions("positions", positions, tuple(x.shape[:-1]))
        n = x.shape[-2]
        if positions is None and not isinstance(offset, Tensor):
            if not 0 <= offset <= self.max_length - n:
                hint = "max_length is the longest sequence that it can learn"
                received = f"{n} from position {offset} on"
                raise ShapeError("x", f"at most {self.max_length} tokens", received, hint)
            return x + self.weight[offset : offset + n]
        at = positions_from(offset, n, x.device) if positions is None else positions
        # Left padding stands before position 0: any row serves there.
        return x + self.weight[at.clamp(min=0)]

    def extra_repr(self) -> str:
        return f"{self.max_length}, {self.width}"


class RotaryPositions(nn.Module):
    """Rotary position embedding of queries and keys (Su et al. 2021), for ``MultiHeadAttention(rope=...)``.

    The formula is that of ``headwise.positions.rotary``. Angles are float64; float16 and bfloat16 features
    turn in float32. One module may serve any number of layers.

    Args:
        base: of the wavelengths.
        width: only the first ``width`` features of a head turn (even); None means all.
        interleaved: pairs are features (2i, 2i + 1), as in the paper and GPT-J; otherwise (i, i + width / 2),
            as in GPT-NeoX and in transformers' Llama.
        scaling: a ``RotaryScaling``: linear, ntk, yarn or llama3.

    Raises:
        HeadwiseError: ``width`` odd, ``base`` not positive, ``scaling`` no scaling.
    """

    def __init__(
        self,
        base: float = 10000.0,
        *,
        width: int | None = None,
        interleaved: bool = False,
        scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        if width is not None and (not is_whole(width) or width < 2 or width % 2):
            hint = "features turn in pairs; None turns all of them"
            raise HeadwiseError("width", "None or an even number >= 2", shown(width), hint)
        rotary_frequencies(4 if width is None else width, base, scaling)
        self.base, self.width, self.interleaved, self.scaling = base, width, interleaved, scaling
        self._tables: dict[Any, tuple[Tensor, Tensor]] = {}

    def forward(self, x: Tensor, positions: Tensor | None = None, *, offset: Offset = 0) -> Tensor:
        """``x`` with its features turned, of the same shape and dtype.

        Args:
            x: ``(..., H, n, d)``, or ``(n, d)``.
            positions: whole numbers that broadcast to ``(..., n)`` without the head axis; None means offset,
                offset + 1, ...
            offset: position of the first row, such as ``cache.length``; one number, or one per entry.

        Raises:
            ShapeError: ``width`` is larger than d, or d is odd.
        """
        d = x.shape[-1]
        width = d if self.width is None else self.width
        if width > d or width % 2:
            expected = f"heads of at least {width} features" if width > d else "heads of an even width"
            raise ShapeError(
                "x", expected, f"shape {tuple(x.shape)}", "RotaryPositions(width=...) turns fewer"
            )
        check_positions("positions", positions, (*x.shape[:-3], x.shape[-2]))
        cosines, sines = self._table(x, positions, offset, width)
        if self.interleaved:
            a, b = x[..., 0:width:2], x[..., 1:width:2]
        else:
            a, b = x[..., : width // 2], x[..., width // 2 : width]
        turned = (a * cosines - b * sines, a * sines + b * cosines)
        rotated = torch.stack(turned, -1).flatten(-2) if self.interleaved else torch.cat(turned, -1)
        rotated = rotated.to(x.dtype)
        return rotated if width == d else torch.cat([rotated, x[..., width:]], -1)

    def _table(
        self, x: Tensor, positions: Tensor | None, offset: Offset, width: int
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines that broadcast over ``x``'s heads, in the dtype that its features turn in."""
        n, dtype = x.shape[-2], torch.promote_types(x.dtype, torch.float32)
        ordered = positions is None and not isinstance(offset, Tensor) and offset >= 0
        if not ordered or torch.compiler.is_compiling() or torch.jit.is_tracing():
            at = positions_from(offset, n, x.device) if positions is None else positions
            cosines, sines = self._waves(at, width)
            pair = cosines.to(x.device, dtype), sines.to(x.device, dtype)
            return pair if at.ndim < 2 else (pair[0].unsqueeze(-3), pair[1].unsqueeze(-3))
        key = (width, x.device, dtype)
        table = self._tables.get(key)
        if table is None or table[0].shape[0] < offset + n:
            length = 1 << (offset + n - 1).bit_length() if offset + n > 1 else 1
            with torch.inference_mode(False):  # else a table made there could not serve training
                cosines, sines = self._waves(torch.arange(length, device=x.device), width)
                table = self._tables[key] = cosines.to(x.device, dtype), sines.to(x.device, dtype)
        return table[0][offset : offset + n], table[1][offset : offset + n]

    def _waves(self, positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
        frequencies, magnitude = rotary_frequencies(int(width), self.base, self.scaling)
        angles = angles_of(positions, frequencies)
        return magnitude * angles.cos(), magnitude * angles.sin()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}}

    def extra_repr(self) -> str:
        width = "" if self.width is None else f", width={self.width}"
        pairs = ", interleaved=True" if self.interleaved else ""
        return f"base={self.base}{width}{pairs}" + (f", scaling={self.scaling}" if self.scaling else "")


def check_width(x: Tensor, width: int) -> None:
    if x.ndim < 2 or x.shape[-1] != width:
        expected = f"(..., n, {width})"
        raise ShapeError("x", expected, f"shape {tuple(x.shape)}", f"the module was made for width {width}")
