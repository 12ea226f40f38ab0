"""Checked GGUF files on this host for the models of a recipe or the lab."""
