"""What runs models on OpenHarmony besides llama.cpp: MindSpore Lite and Neural Network Runtime."""

from labctl.engines.openharmony.mindspore import MindSporeBenchmark, MindSporeDemo
from labctl.engines.openharmony.nnrt import NnrtSample

__all__ = ["MindSporeBenchmark", "MindSporeDemo", "NnrtSample"]
