"""A dashboard that several tests share."""

from collections.abc import Iterator

import pytest
from chinese_texts import every_text_has_chinese
from dashboards import Served, made_lab, served

__all__ = ["every_text_has_chinese"]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(made_lab(tmp_path_factory.mktemp("lab") / "kitchen")) as found:
        yield found
