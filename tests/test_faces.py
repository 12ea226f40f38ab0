"""What a package's face promises can be had: it is imported only at first use."""

import importlib
import pkgutil

import pytest

import labctl

PACKAGES = [m.name for m in pkgutil.walk_packages(labctl.__path__, "labctl.") if m.ispkg]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_face_has_each_of_its_names(package: str) -> None:
    face = importlib.import_module(package)
    for name in getattr(face, "__all__", ()):
        assert getattr(face, name) is not None
