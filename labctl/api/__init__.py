"""The Python interface to a lab's runs: the names of ``import labctl``.

It reads only. Durations are ns, sizes bytes, as in the records.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
