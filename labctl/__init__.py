"""labctl: measure large language models on OpenHarmony edge boards.

``labctl.open_lab()`` opens a lab and gives its runs to a script or a notebook.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
