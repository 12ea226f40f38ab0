"""What the user writes: the lab, recipes and targets, read from YAML and checked.

Whatever is wrong in a file is a ConfigError with a line ``FILE:LINE:COLUMN: key: what`` for each
problem, and the nearest known name.
"""

from labctl.config.lab import Board, Lab, LabFile, find_lab
from labctl.config.recipe import Recipe, find_recipe, load_recipe
from labctl.config.variants import Variant

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
