"""Endpoints: servers that answer questions over HTTP."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.evaluation.endpoints.base import (
        EndpointClient,
        Generation,
        GenerationRequest,
        Message,
        ServerIdentity,
    )
    from labctl.evaluation.endpoints.counting import CountCheck, check_count
    from labctl.evaluation.endpoints.errors import Refused, TryAgain
    from labctl.evaluation.endpoints.opening import Api, open_client
    from labctl.evaluation.endpoints.retries import Answered, generate_with_retries
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": "EndpointClient Generation GenerationRequest Message ServerIdentity",
            "counting": "CountCheck check_count",
            "errors": "Refused TryAgain",
            "opening": "Api open_client",
            "retries": "Answered generate_with_retries",
        },
    )

__all__ = [
    "Answered",
    "Api",
    "CountCheck",
    "EndpointClient",
    "Generation",
    "GenerationRequest",
    "Message",
    "Refused",
    "ServerIdentity",
    "TryAgain",
    "check_count",
    "generate_with_retries",
    "open_client",
]
