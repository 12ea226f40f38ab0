"""Comparison of measurements: two sides are alike, one is slower, or it is unknown."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
