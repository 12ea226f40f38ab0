from .ladder import Climb as Climb
from .ladder import Step as Step
from .ladder import recover as recover
