"""Figures as files: fonts of a host, and what it is told to install."""

import shutil
from pathlib import Path

import pytest
from measured_runs import PAIR, measured

from labctl.errors import ConfigError, HostError
from labctl.report.figures import files
from labctl.report.figures.catalogue import figures_of
from labctl.report.figures.figure import Figure
from labctl.report.figures.files import write_figure


def figure(language: str = "en") -> Figure:
    run = measured(PAIR[:1], repeats=1, tokens=3)
    return figures_of([run], language="zh" if language == "zh" else "en").drawn[0]


@pytest.fixture
def bare_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host without fontconfig, whose one folder of fonts is this one."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(files, "_folders", lambda: [tmp_path / "fonts", tmp_path / "none"])
    (tmp_path / "fonts").mkdir()
    return tmp_path / "fonts"


def test_chinese_in_a_png_needs_a_font_and_the_error_names_its_package(
    bare_host: Path, tmp_path: Path
) -> None:
    (bare_host / "DejaVuSans.ttf").touch()
    path = tmp_path / "figure.png"
    with pytest.raises(ConfigError) as caught:
        write_figure(figure("zh"), path)
    assert "fonts-noto-cjk" in (caught.value.hint or "")
    assert not path.exists()
    write_figure(figure(), path)


def test_an_svg_is_shown_with_the_readers_fonts(bare_host: Path, tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    write_figure(figure("zh"), path)
    assert "每词元时间" in path.read_text()


def test_a_font_is_found_by_its_name_without_fontconfig(bare_host: Path) -> None:
    (bare_host / "noto").mkdir()
    (bare_host / "noto" / "NotoSansCJK-Regular.ttc").touch()
    assert files.chinese_font("每词元时间") == bare_host / "noto"
    assert files.chinese_font("time per token (µs) ▲ ±") is None


def test_a_name_in_chinese_needs_the_font_in_an_english_figure_too(bare_host: Path) -> None:
    with pytest.raises(ConfigError, match="no font with Chinese characters"):
        files.chinese_font(str({"series": "模型"}))


def test_another_ending_and_a_folder_that_cannot_be_written_are_clear_errors(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"figure\.gif") as caught:
        write_figure(figure(), tmp_path / "figure.gif")
    assert caught.value.hint == "use .svg or .png"
    (tmp_path / "file").touch()
    with pytest.raises(HostError):
        write_figure(figure(), tmp_path / "file" / "figure.svg")
