"""Write the zip of a bundle: the same bytes for the same entries, within a reader's bounds."""

import hashlib
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from labctl.bundle import form
from labctl.bundle.form import BundleManifest, Entry, name_problem
from labctl.errors import ConfigError
from labctl.files import appearing
from labctl.units import size

#: The earliest time that a zip can store.
_TIME = (1980, 1, 1, 0, 0, 0)
#: Signs the manifest; None: no signature.
Sign = Callable[[bytes], bytes]


def write_zip(
    path: Path,
    entries: Iterable[tuple[str, bytes]],
    manifest: Callable[[dict[str, Entry]], BundleManifest],
    sign: Sign | None = None,
    *,
    most_bytes: int = form.MOST_BYTES,
) -> BundleManifest:
    """Write a bundle; it appears at ``path`` when it is complete.

    Args:
        path: the file; an existing one is replaced.
        entries: names with contents, in the order in which they are written.
        manifest: called with the written entries; its result is the last entry.
        sign: makes the signature of the manifest's bytes.
        most_bytes: size that a reader accepts for all contents together.

    Raises ConfigError if it would be larger than a reader accepts, HostError.
    """
    written: dict[str, Entry] = {}
    total = 0
    with appearing(path) as file:
        with zipfile.ZipFile(file, "w", allowZip64=False) as bundle:
            for name, content in entries:
                _add(bundle, name, content)
                digest = hashlib.sha256(content).hexdigest()
                written[name] = Entry(sha256=digest, size_bytes=len(content))
                total += len(content)
                _check(len(written), len(content), total, most_bytes)
            made = manifest(dict(sorted(written.items())))
            raw = (made.model_dump_json(indent=2) + "\n").encode()
            _add(bundle, form.MANIFEST, raw)
            if sign is not None:
                _add(bundle, form.SIGNATURE, sign(raw))
        if file.tell() > form.MOST_FILE_BYTES or len(raw) > form.MOST_MANIFEST_BYTES:
            raise _too_large(file.tell())
    return made


def _add(bundle: zipfile.ZipFile, name: str, content: bytes) -> None:
    assert name_problem(name) is None, name
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system = 3  # Unix, on every system
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = len(packer.compress(content)) + len(packer.flush())
    fits = packed < len(content) <= form.MOST_RATIO * packed
    entry.compress_type = zipfile.ZIP_DEFLATED if fits else zipfile.ZIP_STORED
    bundle.writestr(entry, content, compresslevel=9)


def _check(count: int, length: int, total: int, most_bytes: int) -> None:
    if total > most_bytes or length > form.MOST_ENTRY_BYTES:
        raise _too_large(total)
    if count > form.MOST_ENTRIES - 2:
        raise ConfigError(
            f"the run has more than {form.MOST_ENTRIES - 2} files: too many for a bundle",
            hint="publish the run directory itself",
        )


def _too_large(number: int) -> ConfigError:
    return ConfigError(
        f"the bundle would have {size(number)} or more, larger than a reader accepts",
        hint="publish the run directory itself",
    )
