"""Accuracy: data sets, prompts, endpoints and graders."""
