"""Results of a run for CI servers: verdicts in the formats of JUnit, GitHub and GitLab."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
