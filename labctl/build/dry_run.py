"""Explain a build without running any of it."""

from dataclasses import dataclass

from labctl.build.artifact import read_artifact
from labctl.build.plan import BuildRequest, Plan, make_plan
from labctl.build.proof import is_proven
from labctl.build.script import Script, make_script
from labctl.build.workspace import Folders


@dataclass(frozen=True)
class Explanation:
    """The machine, the folders and the commands of a build."""

    plan: Plan
    folders: Folders
    script: Script
    built: bool
    """True if all tools are already built: nothing would run."""

    def document(self) -> dict[str, object]:
        """Return machine, source and commands as JSON."""
        plan = self.plan
        return {
            "toolchain": plan.order.toolchain.identity.model_dump(mode="json"),
            "why": plan.choice.why,
            "source": plan.source.identity.model_dump(mode="json"),
            "environment": dict(plan.order.toolchain.environment),
            "files": dict(self.script.files),
            "commands": [
                {"step": command.step, "cwd": command.cwd or self.folders.tree}
                | {"argv": command.words}
                for command in self.script.commands
            ],
        }


def explain_build(request: BuildRequest) -> Explanation:
    """Return every command of :func:`labctl.build.builder.build` for an empty machine.

    Raises ConfigError, ToolMissing, HostError.
    """
    plan = make_plan(request)
    folders = plan.choice.builder.folders(plan.inputs)
    artifact = read_artifact(plan.artifact)
    return Explanation(
        plan=plan,
        folders=folders,
        script=make_script(plan.order, folders, plan.tools),
        built=artifact is not None and not plan.from_kit and is_proven(plan, artifact, plan.tools),
    )
