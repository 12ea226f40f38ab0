"""Check this host: present programs, missing programs with their purpose, and how to get them."""

from labctl.doctor.checks import Finding, Importance, examine

__all__ = ["Finding", "Importance", "examine"]
