"""Read YAML files, and report each problem with its file and line."""
