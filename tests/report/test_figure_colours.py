"""Colours that can be seen: contrasts of WCAG, and eyes that do not tell all colours apart."""

import itertools
import math

import pytest

from labctl.report.figures.theme import DARK_FROM, PALETTES, RAMP_STEPS, Theme, config

Colour = tuple[float, float, float]

#: From linear RGB to linear RGB as the eye without one kind of cone has it: G. Machado, M.
#: Oliveira and L. Fernandes, IEEE TVCG 15(6), 2009, severity 1.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
THEMES: tuple[Theme, ...] = ("light", "dark")


def linear(code: str) -> Colour:
    parts = [int(code[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return red, green, blue


def contrast(one: str, other: str) -> float:
    """WCAG 2.2: from 1 to 21."""
    high, low = sorted(
        (
            sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), c, strict=True))
            for c in (linear(one), linear(other))
        ),
        reverse=True,
    )
    return (high + 0.05) / (low + 0.05)


def lab(colour: Colour) -> Colour:
    """CIELAB of linear sRGB, white D65."""
    to_xyz = (
        (0.4124564, 0.3575761, 0.1804375),
        (0.2126729, 0.7151522, 0.0721750),
        (0.0193339, 0.1191920, 0.9503041),
    )
    white = (0.95047, 1.0, 1.08883)
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            max(0.0, sum(a * b for a, b in zip(row, colour, strict=True))) / reference
            for row, reference in zip(to_xyz, white, strict=True)
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(code: str, eyes: str) -> Colour:
    rgb = linear(code)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in EYES[eyes]
    )
    return lab((red, green, blue))


@pytest.mark.parametrize("theme", THEMES)
def test_marks_and_texts_stand_out_from_the_background(theme: Theme) -> None:
    palette = PALETTES[theme]
    for colour in palette.categories:
        assert contrast(colour, palette.background) >= 3, colour
    for text in (palette.text, palette.muted, palette.alarm):
        assert contrast(text, palette.background) >= 4.5, text


@pytest.mark.parametrize("theme", THEMES)
def test_texts_stand_out_from_the_bars_that_they_lie_on(theme: Theme) -> None:
    """Names of phases and bounds, which have the first three colours."""
    palette = PALETTES[theme]
    for colour in palette.categories[:3]:
        assert contrast(palette.background, colour) >= 4.5, colour


@pytest.mark.parametrize("theme", THEMES)
def test_texts_stand_out_from_every_cell_of_a_heat_map(theme: Theme) -> None:
    palette = PALETTES[theme]
    assert len(palette.ramp) == RAMP_STEPS
    for step, colour in enumerate(palette.ramp):
        text = palette.on_ramp[step >= DARK_FROM]
        assert contrast(text, colour) >= 4.5, (step, colour)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eyes", EYES)
def test_the_colours_of_a_few_series_are_told_apart_by_all_eyes(theme: Theme, eyes: str) -> None:
    """Four series, as most reports have; shapes and dashes tell all of them apart."""
    colours = [seen(colour, eyes) for colour in PALETTES[theme].categories[:4]]
    for one, other in itertools.combinations(colours, 2):
        assert math.dist(one, other) > 10


@pytest.mark.parametrize("theme", THEMES)
def test_a_ramp_grows_lighter_or_darker_all_the_way(theme: Theme) -> None:
    light = [seen(colour, "all cones")[0] for colour in PALETTES[theme].ramp]
    assert light == sorted(light, reverse=theme == "light")


def test_both_themes_have_the_same_styles() -> None:
    light, dark = config("light"), config("dark")
    assert light.keys() == dark.keys()
    assert light["style"].keys() == dark["style"].keys()
