"""Find what a recipe needs on this host: engine, program, models and files."""
