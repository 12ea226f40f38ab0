"""Results of a run for CI servers: verdicts in the formats of JUnit, GitHub and GitLab."""
