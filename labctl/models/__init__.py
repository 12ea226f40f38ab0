"""Checked GGUF files on this host for the models of a recipe or the lab."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
