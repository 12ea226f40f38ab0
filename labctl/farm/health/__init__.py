"""Health of boards: checks against each board's own history, verdicts, suspicion."""
