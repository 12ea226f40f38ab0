"""Engines for OpenHarmony besides llama.cpp: MindSpore Lite and Neural Network Runtime."""

from labctl.engines.openharmony.mindspore import MindSporeBenchmark, MindSporeDemo
from labctl.engines.openharmony.nnrt import NnrtSample

MINDSPORE_LITE = (MindSporeBenchmark, MindSporeDemo)
NNRT = (NnrtSample,)

__all__ = ["MINDSPORE_LITE", "NNRT", "MindSporeBenchmark", "MindSporeDemo", "NnrtSample"]
