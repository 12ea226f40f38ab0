from .tables import print_experiment as print_experiment
from .tables import print_timing_table as print_timing_table
