"""State of a lab, stored and backed up: decisions of people, and the users of boards.

It cannot be computed from other files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
