"""A real sshd whose sessions are within a virtual board's sandbox."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labs import LabUnderTest
from sshd_host import SshHost, ssh_host

from labctl.transport.hdc import HdcTcpConfig


@contextmanager
def ssh_into(lab: LabUnderTest, folder: Path, target: str = "rk3568") -> Iterator[SshHost]:
    """An sshd whose sessions are on the lab's board; devices.yaml names it alone."""
    with HdcTcpConfig(address=lab.board.address).open() as link:
        said = link.run("env", timeout=20).text
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    path = found.pop("PATH")
    kept = ("TMPDIR", "LABCTL_SANDBOX", "LABCTL_SANDBOX_FAKES", "LABCTL_SANDBOX_EMULATOR")
    environment = {name: found[name] for name in (*kept, "LD_PRELOAD") if name in found}
    with ssh_host(folder, path=path, environment=environment) as host:
        way = host.board()
        entry = {
            "kind": "ssh",
            "host": way.host,
            "port": way.port,
            "user": way.user,
            "identity_file": way.identity_file,
            "known_hosts": way.known_hosts,
        }
        board = {"target": target, "transport": entry, "workdir": lab.board.workdir}
        (lab.root / "devices.yaml").write_text(json.dumps({"boards": {"vb": board}}))
        yield host
