"""Places of the data that comes with labctl: toolchains, recipes, references, documentation.

In a wheel they are inside the package, in a checkout beside it.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parent
_DATA = _PACKAGE / "_shipped" if (_PACKAGE / "_shipped").is_dir() else _PACKAGE.parent

#: One folder a target: ``target.yaml`` and build specs; ``agent/`` holds the agent's C source.
TOOLCHAINS = _DATA / "toolchains"
#: Recipes that work in any lab.
RECIPES = _DATA / "recipes"
#: Published figures.
REFERENCES = _DATA / "references.yaml"
#: The documentation, one Markdown file a page.
DOCS = _DATA / "docs"
#: Pages to read from beginning to end, in this order; the others are references.
GUIDES = (
    "getting-started",
    "first-recipe",
    "measuring",
    "models",
    "accuracy",
    "serving",
    "virtual-boards",
    "farm",
)


def pages() -> list[str]:
    """Name the pages, guides first."""
    references = {path.stem for path in DOCS.glob("*.md")} - {*GUIDES}
    return [*GUIDES, *sorted(references)]
