from .lab import Lab as Lab
from .lab import Runs as Runs
from .lab import open_lab as open_lab
from .run import Run as Run
from .run import Trial as Trial
from .run import Trials as Trials
from .telemetry import Telemetry as Telemetry
