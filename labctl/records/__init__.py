"""Records of labctl: versioned models of facts, trials and runs, and migration of older ones."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
