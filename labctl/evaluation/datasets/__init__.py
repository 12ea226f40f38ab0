"""Data sets: questions from files and hubs."""

from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.datasets.source import DatasetSource, HubDataset, Shots

__all__ = ["DatasetSource", "HubDataset", "Shots", "load_dataset"]
