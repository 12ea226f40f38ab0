"""The dashboard's part of ``devices.yaml``: its names, readers and proxy."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from labctl.config.secrets import SecretPlace
from labctl.config.types import Line
from labctl.config.yaml.document import StrictModel, refuse
from labctl.text_types import Checked, HostName

#: ``look``: read pages; ``run``: also hold boards and cancel own jobs; ``admin``: everything.
Role = Literal["look", "run", "admin"]
ROLES: tuple[Role, ...] = ("look", "run", "admin")


def _network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError:
        raise ValueError(
            "must be an address or a network such as 10.0.0.5 or 10.0.0.0/24"
        ) from None
    return text


Network = Annotated[str, Checked(_network, examples=["10.0.0.5", "10.0.0.0/24"])]


class Proxy(StrictModel):
    """A proxy that authenticates its users."""

    addresses: tuple[Network, ...] = ()
    """Addresses that the proxy comes from; needs `secret`. None: it comes over a Unix socket."""
    secret: SecretPlace | None = None
    """Place of the secret that the proxy sends in the header X-Labctl-Proxy-Secret."""
    user_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{1,60}$")] = "X-Forwarded-User"
    """Header with the name of the user; the proxy must remove it from what its clients send."""
    roles: dict[Line, Role] = Field(default_factory=dict)
    """Roles of users, by name."""
    default_role: Role = "look"
    """Role of the other users of the proxy."""

    @model_validator(mode="after")
    def _is_secret(self) -> Self:
        if self.addresses and self.secret is None:
            raise refuse("addresses alone prove nothing: a secret is needed too", "addresses")
        return self

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of its addresses."""
        return tuple(ip_network(text) for text in self.addresses)


class Web(StrictModel):
    """The dashboard, `labctl serve`."""

    names: tuple[HostName, ...] = ()
    """Host names under which browsers reach it, beside localhost and the address of --listen."""
    reading: Literal["open", "token"] | None = None
    """Readers: everybody who reaches it, or those who have a token. By default `open` on
    loopback and on a Unix socket, where neither `names` nor `proxy` is set; else `token`."""
    proxy: Proxy | None = None
    """A proxy whose header names the user."""
