"""A run as one file that others can check, keep beside their own runs, and make again."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
