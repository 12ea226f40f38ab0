"""SQL databases of labctl: a SQLite file, or a PostgreSQL shared by a lab."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
