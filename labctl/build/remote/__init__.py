"""Builds on another machine, over ssh. Needs the extra ``ssh``: import it only when it is used."""

from labctl.build.remote.builder import SshBuilder

__all__ = ["SshBuilder"]
