from .authorisation import Authorisation as Authorisation
from .board import Board as Board
from .daemon import Daemon as Daemon
from .daemon import PortTaken as PortTaken
from .limits import allow_boards as allow_boards
from .parameters import PARAMETERS as PARAMETERS
from .version_profile import Version as Version
