"""A farm of boards: queue, scheduler, health, workers of several hosts, nightly jobs."""
