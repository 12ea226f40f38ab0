"""Find the inputs of a recipe on this host: engine, program, models and files."""
