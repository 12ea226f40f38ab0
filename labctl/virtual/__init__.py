"""Boards made of software: an hdc daemon, a shell, a directory, and injected faults."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
