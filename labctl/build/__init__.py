"""Builds tools for targets: sources, the local builder, proofs, and the cache of artifacts."""

from labctl.build.artifact import (
    Artifact,
    Manifest,
    SmokeRun,
    ToolRecord,
    find_artifact,
    list_artifacts,
)
from labctl.build.builder import build
from labctl.build.dry_run import Explanation, explain_build
from labctl.build.plan import BuildRequest
from labctl.build.progress import OnProgress, Progress, Step
from labctl.build.spec import BuildSpec, find_spec
from labctl.build.spec_source import GitSource
from labctl.build.toolchain import BuilderKind, CompilerKind

__all__ = [
    "Artifact",
    "BuildRequest",
    "BuildSpec",
    "BuilderKind",
    "CompilerKind",
    "Explanation",
    "GitSource",
    "Manifest",
    "OnProgress",
    "Progress",
    "SmokeRun",
    "Step",
    "ToolRecord",
    "build",
    "explain_build",
    "find_artifact",
    "find_spec",
    "list_artifacts",
]
