"""The index of runs: a cache of what the run directories say, made again at any time."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
