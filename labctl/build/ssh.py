"""Choice of the build host of devices.yaml that builds over ssh."""

from pathlib import Path

from labctl.build.workspace import Builder
from labctl.checked import listed, unknown
from labctl.config.lab import FILE_NAME, find_lab
from labctl.errors import ConfigError, ToolMissing
from labctl.transport.registry import TRANSPORTS


def ssh_builder(host: str | None, lab_root: Path | None) -> Builder:
    """Return the builder on a build host of the lab; without a name, on its only one.

    Raises ConfigError, ToolMissing when the ssh library is not installed.
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
            hint="pip install 'labctl[ssh]'",
        ) from error
    return SshBuilder(host, hosts, lab.root)
