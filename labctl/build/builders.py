"""Choice of the build machine: the requested one, or the first that meets all needs.

Builds on a build host of devices.yaml run over ssh.
"""

from dataclasses import dataclass
from pathlib import Path

from labctl.build.local import LocalBuilder
from labctl.build.manifest import BuilderKind
from labctl.build.progress import OnProgress, ignore
from labctl.build.toolchain import Needs, Toolchain
from labctl.build.workspace import Builder
from labctl.config.lab import FILE_NAME, find_lab
from labctl.config.target import Target
from labctl.distribution import install_extra
from labctl.errors import ConfigError, HostError, ToolMissing
from labctl.suggestions import listed, unknown
from labctl.transport.built_in import TRANSPORTS


def ssh_builder(host: str | None, lab_root: Path | None) -> Builder:
    """Return the builder on a build host of the lab; without a name, on the only one.

    Raises ConfigError, or ToolMissing if the ssh library is not installed.
    """
    lab = find_lab(lab_root or Path(), TRANSPORTS)
    hosts = lab.lab.build_hosts
    if not hosts:
        raise ConfigError(
            f"{lab.path} names no build host",
            hint="add one: build_hosts: {NAME: {address: HOST, user: USER}}",
        )
    if host is None:
        if len(hosts) > 1:
            raise ConfigError(
                f"{FILE_NAME} has several build hosts", hint=f"name one: --host {listed(hosts)}"
            )
        host = next(iter(hosts))
    if host not in hosts:
        raise ConfigError(unknown("build host", host, hosts))
    try:
        from labctl.build.remote import SshBuilder
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "labctl":
            raise
        raise ToolMissing(
            f"builds over ssh need the Python package {error.name!r}",
            hint=install_extra("ssh"),
        ) from error
    return SshBuilder(host, hosts, lab.root)


#: Builders that ``auto`` tries, in this order.
AUTO = (BuilderKind.LOCAL, BuilderKind.CONTAINER, BuilderKind.SSH)


@dataclass(frozen=True)
class Choice:
    """The build machine, its toolchain, and the reason for the choice."""

    builder: Builder
    toolchain: Toolchain
    why: str


def make(
    kind: BuilderKind,
    host: str | None,
    lab_root: Path | None,
    on_progress: OnProgress,
    *,
    untrusted: bool = False,
) -> Builder:
    """Make the builder of a kind; ``untrusted``: for an untrusted source.

    Raises ConfigError, ToolMissing.
    """
    if untrusted and kind is not BuilderKind.CONTAINER:
        raise ConfigError(
            f"an untrusted source is built in a container only, not with --builder {kind}",
            hint="leave --builder out",
        )
    if host is not None and kind is not BuilderKind.SSH:
        raise ConfigError(
            f"a build host is named, but the {kind} builder has none",
            hint=f"--builder ssh --host {host}",
        )
    match kind:
        case BuilderKind.LOCAL:
            return LocalBuilder()
        case BuilderKind.CONTAINER:
            from labctl.build.container import ContainerBuilder

            return ContainerBuilder(lab_root, on_progress, untrusted=untrusted)
        case BuilderKind.SSH:
            return ssh_builder(host, lab_root)


def choose(
    kind: BuilderKind | None,
    target: Target,
    needs: Needs,
    host: str | None,
    lab_root: Path | None,
    *,
    on_progress: OnProgress = ignore,
    untrusted: bool = False,
) -> Choice:
    """Choose the builder of this kind; for ``None``, the first that meets all needs.

    For an ``untrusted`` source, choose a container. Raises ToolMissing, HostError or ConfigError:
    of the requested builder, or of all builders.
    """
    if kind is None and (host is not None or untrusted):
        kind = BuilderKind.CONTAINER if untrusted else BuilderKind.SSH
    if kind is not None:
        builder = make(kind, host, lab_root, on_progress, untrusted=untrusted)
        return Choice(builder, builder.offer(target, needs), "asked for")
    refused: list[HostError | ConfigError] = []
    for candidate in AUTO:
        try:
            builder = make(candidate, None, lab_root, on_progress)
            toolchain = builder.offer(target, needs)
        except (HostError, ConfigError) as error:
            refused.append(error)
            continue
        tried = zip(AUTO, refused, strict=False)
        others = "; ".join(f"{other}: {error.message}" for other, error in tried)
        return Choice(
            builder, toolchain, f"the first that can ({others})" if others else "the first that can"
        )
    if len(refused) == 1:
        raise refused[0]
    reasons = "\n".join(
        f"{other}: {error.message}" + (f" ({error.hint})" if error.hint else "")
        for other, error in zip(AUTO, refused, strict=True)
    )
    raise ToolMissing("no builder can build this here", hint=refused[0].hint, details=reasons)
