"""Quotas of users, as ``devices.yaml`` sets them."""

from typing import Annotated

from pydantic import Field

from labctl.config.yaml.document import StrictModel

#: Name for every user without a quota of their own.
EACH = "default"


class Quota(StrictModel):
    """Limits for one user of the lab."""

    boards: Annotated[int, Field(ge=1)] | None = None
    """Most boards in use, held or reserved at the same time; by default all."""
    hours: Annotated[float, Field(gt=0)] | None = None
    """Most hours of use in the last 24 hours, summed over the boards; by default no limit."""
