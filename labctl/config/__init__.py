"""Files of the user: the lab, recipes and targets, read from YAML and checked.

An error in a file is a ConfigError with a line ``FILE:LINE:COLUMN: key: what`` for each problem,
and the nearest known name.
"""
