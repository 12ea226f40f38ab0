"""The hdc protocols, a separate library: both ends of a session, and the client of a server."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
