"""Data sets: questions from files and hubs."""

from labctl.evaluation.datasets.kept import KeptQuestions, keep_questions, kept_questions
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.datasets.source import DatasetSource, HubDataset, Shots

__all__ = [
    "DatasetSource",
    "HubDataset",
    "KeptQuestions",
    "Shots",
    "keep_questions",
    "kept_questions",
    "load_dataset",
]
