"""A build host of devices.yaml, reached over ssh, and short scripts there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from labctl.config.lab import BuildHost
from labctl.errors import CommandTimeout, HostError, HostTimeout, LinkError, tells_full_disk
from labctl.text_types import split_endpoint
from labctl.transport.ssh.link import SshLink
from labctl.transport.ssh.login import Login, log_in
from labctl.transport.ssh.program import Answer, Take, call

SCRIPTS = Path(__file__).parent / "scripts"
#: Before every script: messages in English; only this user may read new files.
PROLOGUE = "export LC_ALL=C; umask 077\n"

#: Opens a connection, within its own limits.
OpenLink: TypeAlias = Callable[[Login], SshLink]


@contextmanager
def connected(
    name: str, hosts: Mapping[str, BuildHost], root: Path, *, open_link: OpenLink = log_in
) -> Iterator[SshLink]:
    """Connect to a build host of ``hosts``; file paths in devices.yaml start at ``root``.

    Errors of the connection while it is open count as the host's: HostError, HostTimeout. Raises
    ConfigError if an ssh key or configuration cannot be read.
    """
    try:
        link = open_link(_login(name, hosts, root))
        try:
            yield link
        finally:
            link.close()
    except CommandTimeout as error:
        raise HostTimeout(error.message, hint=error.hint, details=error.details) from error
    except LinkError as error:
        raise HostError(error.message, hint=error.hint, details=error.details) from error


def run_script(
    link: SshLink,
    script: str,
    *words: str,
    timeout: float,
    input_blocks: Iterable[bytes] = (),
    take: Take | None = None,
) -> Answer:
    """Run a short script to its end; see :func:`labctl.transport.ssh.program.call`."""
    return call(
        link, PROLOGUE + script, *words, timeout=timeout, input_blocks=input_blocks, take=take
    )


def refused(link: SshLink, what: str, answer: Answer) -> HostError:
    """Return the error for a failed script; ``what`` completes the message "cannot ..."."""
    if tells_full_disk(answer.errors):
        return HostError(
            f"cannot {what}: the disk of {link.name} is full",
            hint="free some space there, or choose another workdir in devices.yaml",
        )
    return HostError(f"{link.name} cannot {what}", details=answer.errors or None)


def _login(name: str, hosts: Mapping[str, BuildHost], root: Path) -> Login:
    host = hosts[name]
    address, port = _address(host.address)
    return Login(
        f"build host {name!r}",
        address,
        port,
        host.user,
        None if host.key is None else root / host.key,
        None if host.known_hosts is None else root / host.known_hosts,
        None if host.jump is None else _login(host.jump, hosts, root),
    )


def _address(text: str) -> tuple[str, int | None]:
    try:
        return split_endpoint(text)
    except ValueError:
        return text.strip("[]"), None
