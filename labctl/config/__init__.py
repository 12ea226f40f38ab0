"""Files of the user: the lab, recipes and targets, read from YAML and checked.

An error in a file is a ConfigError with a line ``FILE:LINE:COLUMN: key: what`` for each problem,
and the nearest known name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
