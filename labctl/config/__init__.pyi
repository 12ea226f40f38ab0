from .lab import Board as Board
from .lab import Lab as Lab
from .lab import LabFile as LabFile
from .lab import find_lab as find_lab
from .recipe import Recipe as Recipe
from .recipe import find_recipe as find_recipe
from .recipe import load_recipe as load_recipe
from .recipe_parts import Variant as Variant
