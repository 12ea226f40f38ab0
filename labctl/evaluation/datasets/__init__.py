"""Data sets: questions from files and hubs."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.evaluation.datasets.kept import KeptQuestions, keep_questions, kept_questions
    from labctl.evaluation.datasets.load import load_dataset
    from labctl.evaluation.datasets.source import DatasetSource, HubDataset, Shots
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "kept": "KeptQuestions keep_questions kept_questions",
            "load": "load_dataset",
            "source": "DatasetSource HubDataset Shots",
        },
    )

__all__ = [
    "DatasetSource",
    "HubDataset",
    "KeptQuestions",
    "Shots",
    "keep_questions",
    "kept_questions",
    "load_dataset",
]
