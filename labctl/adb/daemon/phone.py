"""The phone that a daemon serves."""

from dataclasses import dataclass

from labctl.adb.daemon.authorisation import Authorisation
from labctl.daemon.board import Board

#: What this daemon can do, by adb's names; of the compressions, the one that labctl has.
FEATURES = (
    "shell_v2",
    "cmd",
    "stat_v2",
    "ls_v2",
    "fixed_push_mkdir",
    "fixed_push_symlink_timestamp",
    "sendrecv_v2",
    "sendrecv_v2_lz4",
)


@dataclass(frozen=True)
class Phone(Board):
    """A phone with adbd, of a user build."""

    product: str = "virtual"
    model: str = "Virtual"
    device: str = "virtual"
    features: tuple[str, ...] = FEATURES
    #: Decides which hosts may connect; None: all, without a key.
    authorisation: Authorisation | None = None

    @property
    def banner(self) -> bytes:
        """The phone's name and features, as it tells its hosts."""
        names = {"name": self.product, "model": self.model, "device": self.device}
        properties = "".join(f"ro.product.{key}={value};" for key, value in names.items())
        return f"device::{properties}features={','.join(self.features)}".encode()
