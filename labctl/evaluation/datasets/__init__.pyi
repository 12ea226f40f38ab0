from .kept import KeptQuestions as KeptQuestions
from .kept import keep_questions as keep_questions
from .kept import kept_questions as kept_questions
from .load import load_dataset as load_dataset
from .source import DatasetSource as DatasetSource
from .source import HubDataset as HubDataset
from .source import Shots as Shots
