import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from ssl import SSLContext

    from postgres_server import PostgresServer

sys.path.insert(0, str(Path(__file__).parent / "support"))

# A run in the background (`nohup`, a shell's `&`) ignores these, and all it starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long an example takes is no property of the code on a busy machine.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests `-m` leaves out; test_soak_*.py has long tests alone."""
    left_out = str(config.option.markexpr)
    is_soak = collection_path.name.startswith("test_soak_")
    if is_soak and "not soak" in left_out and "not servers" in left_out:
        return True
    is_bench = collection_path.name == "bench"
    return True if is_bench and "not bench" in left_out else None


def pytest_collection() -> None:
    """Spare a collection of tests, which makes little garbage, a quarter of its time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spare garbage collections the look at all that was collected: a second each, and more."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave PostgreSQL, and the files that take long, out of `make quick`."""
    from slow_files import SLOW

    assert all(map(Path.is_file, SLOW))
    for item in items:
        assert isinstance(item, pytest.Function)
        if item.path.name.startswith("test_soak_"):
            assert item.get_closest_marker("soak") or item.get_closest_marker("servers"), (
                item.nodeid
            )
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if item.path in SLOW or "postgres" in item.fixturenames or "postgresql" in given:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read the certificates of this system once: 30 ms and more for each request else."""
    from labctl import http

    read, found = http._certificates, dict[tuple[str | None, ...], "SSLContext"]()

    def kept() -> "SSLContext":
        named = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
        key = tuple(map(os.environ.get, named))
        if key not in found:
            found[key] = read()
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "_certificates", kept)
        yield


@pytest.fixture
def private_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own; the cache stays the user's, slow things live there."""
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """One PostgreSQL for all tests of this process."""
    from postgres_server import postgres_server

    with postgres_server() as server:
        yield server


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):  # type: ignore[no-untyped-def]
    """Where nothing may be skipped, a skip is a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("LABCTL_TEST_NO_SKIP") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
