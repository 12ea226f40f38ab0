"""``labctl hdc``: hdc for a person, on labctl's own stack."""

from labctl.cli.hdc.group import hdc

__all__ = ["hdc"]
