"""Boards made of software: an hdc daemon, a shell and a directory."""

from labctl.virtual.board import Served, VirtualBoard, serve, serving

__all__ = ["Served", "VirtualBoard", "serve", "serving"]
