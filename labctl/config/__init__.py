"""Files of the user: the lab, recipes and targets, read from YAML and checked.

An error in a file is a ConfigError with a line ``FILE:LINE:COLUMN: key: what`` for each problem,
and the nearest known name.
"""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.config.lab import Board, Lab, LabFile, find_lab
    from labctl.config.recipe import Recipe, find_recipe, load_recipe
    from labctl.config.recipe_parts import Variant
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "lab": "Board Lab LabFile find_lab",
            "recipe": "Recipe find_recipe load_recipe",
            "recipe_parts": "Variant",
        },
    )

__all__ = [
    "Board",
    "Lab",
    "LabFile",
    "Recipe",
    "Variant",
    "find_lab",
    "find_recipe",
    "load_recipe",
]
