"""Servers that labctl starts and stops for an evaluation."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.evaluation.servers.started import ServerRequest, StartedEndpoint, started_endpoint
else:
    __getattr__ = lazy_names(
        __name__, {"started": "ServerRequest StartedEndpoint started_endpoint"}
    )

__all__ = ["ServerRequest", "StartedEndpoint", "started_endpoint"]
