"""Inputs of an artifact: source, patches, compiler, libraries, SDKs.

Enough for an SBOM (SPDX, CycloneDX): name and version; hash and licence where known.
"""

from labctl.build.manifest import CompilerKind, Material, SourceIdentity
from labctl.build.script import Order

#: SPDX expressions of the libraries that compilers link into every program.
_LLVM = "Apache-2.0 WITH LLVM-exception"
_GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"


def bill_of_materials(order: Order, source: SourceIdentity) -> tuple[Material, ...]:
    """List everything that goes into a build."""
    found = [_source(order, source)]
    found += [
        Material(kind="patch", name=patch.name, sha256=patch.sha256, linked=True)
        for patch in source.patches
    ]
    found += [
        Material(kind="kit", name=f"{name}: {order.values[name]}", linked=True)
        for name in order.spec.paths
        if name != order.kit
    ]
    return (*found, *_toolchain(order))


def _source(order: Order, source: SourceIdentity) -> Material:
    return Material(
        kind="kit" if source.kind == "kit" else "source",
        name=source.location,
        version=source.commit,
        sha256=source.sha256,
        licence=order.spec.licence,
        linked=True,
    )


def _toolchain(order: Order) -> list[Material]:
    identity = order.toolchain.identity
    found: list[Material] = []
    match identity.compiler:
        case CompilerKind.ZIG:
            found.append(_compiler("zig", identity.version, "MIT"))
            runtime = ("compiler-rt", "libunwind", "libc++", "libc++abi")
            found += [_library(f"{name} of zig", identity.version, _LLVM) for name in runtime]
        case CompilerKind.GCC:
            found.append(_compiler("gcc", identity.version, "GPL-3.0-or-later"))
            found += [_library(name, identity.version, _GCC) for name in ("libgcc", "libstdc++")]
        case CompilerKind.SDK:
            pass
    if identity.libc is not None:
        name, _, version = identity.libc.partition(" ")
        known = {"musl": "MIT", "glibc": "LGPL-2.1-or-later"}.get(name)
        found.append(_library(name, version.removeprefix("of ") or None, known))
    for tool, number in (("cmake", identity.cmake), ("ninja", identity.ninja)):
        if number is not None:
            found.append(Material(kind="build-tool", name=tool, version=number, linked=False))
    if identity.on.image is not None:
        digest = identity.on.image.rpartition(":")[2]
        found.append(Material(kind="image", name=identity.on.image, sha256=digest, linked=False))
    return found


def _compiler(name: str, version: str | None, licence: str) -> Material:
    return Material(kind="compiler", name=name, version=version, licence=licence, linked=False)


def _library(name: str, version: str | None, licence: str | None) -> Material:
    return Material(kind="library", name=name, version=version, licence=licence, linked=True)
