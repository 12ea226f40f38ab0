"""Builds tools for targets: sources, the local builder, proofs, and the cache of artifacts."""

from labctl.build.artifact import (
    Artifact,
    Manifest,
    SmokeRun,
    ToolRecord,
    find_artifact,
    list_artifacts,
)
from labctl.build.builder import BuildRequest, build
from labctl.build.progress import OnProgress, Progress, Step
from labctl.build.spec import BuildSpec, GitSource, find_spec, product_names

__all__ = [
    "Artifact",
    "BuildRequest",
    "BuildSpec",
    "GitSource",
    "Manifest",
    "OnProgress",
    "Progress",
    "SmokeRun",
    "Step",
    "ToolRecord",
    "build",
    "find_artifact",
    "find_spec",
    "list_artifacts",
    "product_names",
]
