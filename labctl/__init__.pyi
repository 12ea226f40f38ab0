from .api.lab import Lab as Lab
from .api.lab import Runs as Runs
from .api.lab import open_lab as open_lab
from .api.run import Run as Run
from .api.run import Trial as Trial
from .api.run import Trials as Trials
from .api.telemetry import Telemetry as Telemetry
