"""A farm of boards: queue, schedule, health, workers of several hosts, nightly jobs."""
