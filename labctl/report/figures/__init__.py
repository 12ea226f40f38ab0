"""Figures made from records: charts in Vega-Lite with their data, as files or in a page."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
