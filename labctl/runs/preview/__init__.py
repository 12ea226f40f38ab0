"""Preview a run without running it, from the last probe and earlier runs."""
