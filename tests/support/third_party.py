"""Packages of others that bring an engine, installed in a folder."""

import sys
from collections.abc import Mapping
from pathlib import Path

from labctl import process

SOURCE = Path(__file__).parents[1] / "fixtures" / "abacus_engine"


def install_abacus(folder: Path) -> Path:
    """Build the package's wheel and install it, both as a user does, but offline."""
    _run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=SOURCE)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    _run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "-t", str(site), str(wheel))
    return site


def _run(*words: str, cwd: Path | None = None) -> None:
    done = process.run([sys.executable, *words], timeout=120, cwd=cwd)
    assert done.exit_status == 0, done.tail()


def write_package(
    site: Path,
    distribution: str,
    code: str,
    *,
    name: str = "other",
    version: str = "0.1",
    offers: str = "engines",
) -> None:
    """A package as an installer leaves it, whose one module offers the engine ``name``."""
    module = distribution.replace("-", "_")
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(code)
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    files: Mapping[str, str] = {
        "METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
        "entry_points.txt": f"[labctl.{offers}]\n{name} = {module}:{offers.upper()}\n",
    }
    for file, text in files.items():
        (info / file).write_text(text)
