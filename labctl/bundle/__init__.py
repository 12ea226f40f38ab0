"""A run as one file that others can check, keep beside their own runs, and make again."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.bundle.form import SUFFIX, BundleManifest, NotABundle
    from labctl.bundle.importing import import_bundle
    from labctl.bundle.make import make_bundle
    from labctl.bundle.reader import Bundle, open_bundle
    from labctl.bundle.signature import Signer, verify
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "form": "SUFFIX BundleManifest NotABundle",
            "importing": "import_bundle",
            "make": "make_bundle",
            "reader": "Bundle open_bundle",
            "signature": "Signer verify",
        },
    )

__all__ = [
    "SUFFIX",
    "Bundle",
    "BundleManifest",
    "NotABundle",
    "Signer",
    "import_bundle",
    "make_bundle",
    "open_bundle",
    "verify",
]
