"""The single gateway to the Python package index: the user's own pip.

pip knows the user's index, mirror, proxy and certificates; labctl knows no address.
"""

import re
import sys

from labctl.errors import HostError, ToolMissing, tells_full_disk

_NETWORK = re.compile(
    r"Retrying \(Retry|NewConnectionError|ConnectionError|ConnectTimeout|ReadTimeout|ProxyError"
    r"|SSLError|name resolution|HTTP error (?:5|429)|Connection (?:refused|reset)"
)


def download(*words: str) -> list[str]:
    """Return the command line of ``pip download WORDS``, without dependencies."""
    return [
        *(sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check"),
        # Without a retry pip says of a dead network only that it found no such package.
        *("--retries", "2", "--timeout", "30"),
        *("download", "--no-deps", *words),
    ]


def host_fault(text: str, what: str) -> HostError | None:
    """Return the fault of this host or its network in pip's output; ``what`` could not be done.

    None if the output shows no such fault: then it is the package, or something new.
    """
    if "No module named pip" in text:
        return ToolMissing(
            f"{what}: {sys.executable} has no pip", hint=f"{sys.executable} -m ensurepip"
        )
    if tells_full_disk(text):
        return HostError(f"{what}: the disk of this host is full", details=text)
    if _NETWORK.search(text):
        return HostError(
            f"{what}: the package index cannot be reached",
            hint="check the network, or pip's configuration (`pip config list`)",
            details=text,
        )
    return None
