"""What the compiler made: wide registers and functions stay in their own instruction set's object."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(ROOT.glob("build/*/CMakeFiles/isa_*.dir"))
BUILT = {folder.stem: path for folder in FOLDERS for path in folder.rglob("*.o")}

pytestmark = pytest.mark.skipif(
    not FOLDERS or shutil.which("objdump") is None, reason="not run: no build folder, or no objdump"
)


def test_every_folder_holds_an_object():
    assert set(BUILT) == {folder.stem for folder in FOLDERS} >= {"isa_baseline"}


def disassembly(name: str) -> str:
    return subprocess.run(["objdump", "-d", BUILT[name]], check=True, capture_output=True, text=True).stdout


def symbols(name: str) -> list[tuple[str, str]]:
    """(kind, demangled name) of what the object defines for others to link with."""
    listing = subprocess.run(
        ["nm", "-C", "--defined-only", "--extern-only", BUILT[name]],
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        (line.split()[1], line.split(maxsplit=2)[2]) for line in listing.stdout.splitlines() if line.strip()
    ]


def wide(text: str, registers: str) -> bool:
    return re.search(rf"%{registers}\d", text) is not None


def test_the_baseline_holds_no_wider_registers():
    text = disassembly("isa_baseline")
    assert not wide(text, "ymm") and not wide(text, "zmm")


@pytest.mark.skipif("isa_avx2" not in BUILT, reason="not run: not an x86-64 build")
def test_each_set_uses_its_own_registers_and_no_wider_ones():
    avx2, avx512 = disassembly("isa_avx2"), disassembly("isa_avx512")
    assert wide(avx2, "ymm") and not wide(avx2, "zmm")
    assert wide(avx512, "zmm")
    assert "vfmadd" in avx2 and "vfmadd" in avx512


@pytest.mark.parametrize("name", sorted(BUILT))
def test_no_object_offers_a_function_that_another_could_pick(name):
    """A weak symbol outside the set's namespace could be merged into the baseline by the linker."""
    own = f"headwise::{name.removeprefix('isa_')}::"
    strangers = [symbol for kind, symbol in symbols(name) if kind in "WVu" and own not in symbol]
    assert strangers == []
