"""Which machine builds, and what is said of those that cannot."""

from collections.abc import Mapping

import pytest

from labctl.build import builders
from labctl.build.builders import choose
from labctl.build.local import LocalBuilder
from labctl.build.manifest import BuilderKind, CompilerKind
from labctl.build.manifest import Machine as OnMachine
from labctl.build.toolchain import Needs, Toolchain, kit_toolchain
from labctl.config.target import Target, load_target
from labctl.errors import ConfigError, HostError, ToolMissing

TARGET = load_target("rk3568")
NEEDS = Needs(cmake=True)


class Offers(LocalBuilder):
    """A builder that has a toolchain, or an error."""

    def __init__(self, offer: Exception | None):
        self._offer = offer

    def offer(self, target: Target, needs: Needs) -> Toolchain:
        if self._offer is not None:
            raise self._offer
        return kit_toolchain(OnMachine(builder=BuilderKind.LOCAL, machine="x86_64"))


def offering(
    monkeypatch: pytest.MonkeyPatch, offers: Mapping[BuilderKind, Exception | None]
) -> None:
    monkeypatch.setattr(builders, "make", lambda kind, *_, **_options: Offers(offers[kind]))


def test_the_first_that_can_is_taken_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    no_zig = ToolMissing("no zig", hint="pip install it")
    offering(monkeypatch, {BuilderKind.LOCAL: no_zig, BuilderKind.CONTAINER: None})
    assert choose(None, TARGET, NEEDS, None, None).why == "the first that can (local: no zig)"
    offering(monkeypatch, {BuilderKind.LOCAL: None, BuilderKind.CONTAINER: None})
    assert choose(None, TARGET, NEEDS, None, None).why == "the first that can"


def test_when_none_can_every_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    offering(
        monkeypatch,
        {
            BuilderKind.LOCAL: ToolMissing("no zig", hint="pip install it"),
            BuilderKind.CONTAINER: HostError("no podman"),
            BuilderKind.SSH: ConfigError("no build_hosts"),
        },
    )
    with pytest.raises(ToolMissing) as caught:
        choose(None, TARGET, NEEDS, None, None)
    assert caught.value.hint == "pip install it"
    assert (caught.value.details or "").splitlines() == [
        "local: no zig (pip install it)",
        "container: no podman",
        "ssh: no build_hosts",
    ]


def test_the_one_that_is_asked_for_says_itself_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offering(monkeypatch, {BuilderKind.LOCAL: None, BuilderKind.CONTAINER: HostError("no podman")})
    with pytest.raises(HostError, match="no podman"):
        choose(BuilderKind.CONTAINER, TARGET, NEEDS, None, None)
    assert choose(BuilderKind.LOCAL, TARGET, NEEDS, None, None).why == "asked for"


def test_the_local_builder_takes_zig_or_what_is_asked_for() -> None:
    local = LocalBuilder()
    identity = local.offer(TARGET, NEEDS).identity
    assert identity.compiler is CompilerKind.ZIG
    assert identity.libc == f"musl of zig {identity.version}"
    kit = local.offer(TARGET, Needs(cmake=False, compiler=False)).identity
    assert (kit.compiler, kit.version) == (CompilerKind.SDK, None)


def test_another_machine_or_image_is_another_key() -> None:
    def digested(**given: str) -> dict[str, object]:
        on = OnMachine(builder=BuilderKind.CONTAINER, machine="x86_64", **given)  # type: ignore[arg-type]
        return kit_toolchain(on).identity.digested

    assert digested(image="sha256:a") != digested(image="sha256:b")
    assert digested(host="a") != digested(host="b")
    assert digested(engine="podman 4") == digested(engine="docker 27")
