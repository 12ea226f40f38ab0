"""Run one trial on a held board."""
