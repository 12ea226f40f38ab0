"""Builds tools for targets: sources, the local builder, proofs, and the cache of artifacts."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.build.artifact import (
        Artifact,
        build_command,
        find_artifact,
        find_artifacts,
        list_artifacts,
        other_compiler,
    )
    from labctl.build.builder import build
    from labctl.build.dry_run import Explanation, explain_build
    from labctl.build.manifest import BuilderKind, CompilerKind, Manifest, SmokeRun, ToolRecord
    from labctl.build.plan import BuildRequest, Plan, other_source
    from labctl.build.progress import BuildProgress, OnProgress, Step
    from labctl.build.spec import BuildSpec, find_spec
    from labctl.build.spec_source import GitSource
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "artifact": "Artifact build_command find_artifact find_artifacts list_artifacts"
            " other_compiler",
            "builder": "build",
            "dry_run": "Explanation explain_build",
            "manifest": "BuilderKind CompilerKind Manifest SmokeRun ToolRecord",
            "plan": "BuildRequest Plan other_source",
            "progress": "BuildProgress OnProgress Step",
            "spec": "BuildSpec find_spec",
            "spec_source": "GitSource",
        },
    )

__all__ = [
    "Artifact",
    "BuildProgress",
    "BuildRequest",
    "BuildSpec",
    "BuilderKind",
    "CompilerKind",
    "Explanation",
    "GitSource",
    "Manifest",
    "OnProgress",
    "Plan",
    "SmokeRun",
    "Step",
    "ToolRecord",
    "build",
    "build_command",
    "explain_build",
    "find_artifact",
    "find_artifacts",
    "find_spec",
    "list_artifacts",
    "other_compiler",
    "other_source",
]
