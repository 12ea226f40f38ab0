"""``labctl models``: the lab's models."""

from labctl.cli.models.group import models

__all__ = ["models"]
