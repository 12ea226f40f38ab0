"""Check this host: what is present, what is missing for which job, and how to get it."""

from labctl.doctor.checks import Finding, Importance, examine

__all__ = ["Finding", "Importance", "examine"]
