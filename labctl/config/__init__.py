"""What the user writes: the lab, recipes and targets, read from YAML and checked."""
