"""Programs of llama.cpp that tests run, built as users build them."""

from labctl.build.artifact import list_artifacts
from labctl.build.builder import build
from labctl.build.plan import BuildRequest


def need_server(target: str) -> None:
    """Build llama-server if it is missing: minutes the first time, then cached.

    One that was built earlier will do, also where the build spec has changed since.
    """
    there = [a for a in list_artifacts() if a.manifest.target == target and a.has(["llama-server"])]
    if not there:
        build(BuildRequest(target=target, version="new", tools=("llama-server",)))
