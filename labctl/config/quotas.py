"""Quotas of users, as ``devices.yaml`` sets them."""

from typing import Annotated

from pydantic import Field

from labctl.config.yaml.document import StrictModel

#: Name for every user without a quota of their own.
EACH = "default"


class Quota(StrictModel):
    """Limits for one user of the lab."""

    boards: Annotated[int, Field(ge=1)] | None = None
    """Boards at once, in use, held or reserved; by default all."""
    hours: Annotated[float, Field(gt=0)] | None = None
    """Hours of use in the last 24 hours, summed over the boards; by default all."""
