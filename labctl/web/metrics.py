"""``/metrics`` in Prometheus' text format, version 0.0.4.

Labels are bounded: boards of devices.yaml, and fixed words. Names of people, runs or recipes are
not labels: each would create a permanent series.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from labctl.board.status import BOARD_USES
from labctl.distribution import labctl_version
from labctl.errors import printable
from labctl.index.index import Index
from labctl.web.dashboard import Dashboard, UserRoute, dashboard_of

router = APIRouter(include_in_schema=False, route_class=UserRoute)
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Sample = tuple[dict[str, str], float]


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Return all metrics."""
    return Response(generate_latest(_Metrics(dashboard_of(request))), media_type=_TYPE)


@dataclass(frozen=True)
class _Metrics(Collector):
    """The metrics of a dashboard at the time of a request."""

    dashboard: Dashboard

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its values."""
        for name, kind, words, samples in _families(self.dashboard):
            metric = Metric(name.removesuffix("_total"), words, kind)
            for labels, value in samples:
                shown = {key: printable(text) for key, text in labels.items()}
                metric.add_sample(name, shown, value)
            yield metric


def _families(dashboard: Dashboard) -> Iterator[tuple[str, str, str, Sequence[_Sample]]]:
    view = dashboard.view
    boards, jobs = view.boards(), view.state.jobs.list()
    yield "labctl_info", "gauge", "Version of labctl.", [({"version": labctl_version()}, 1.0)]
    yield (
        "labctl_board_state", "gauge", "1 for the state that a board is in.",
        [({"board": b.name, "state": s}, float(b.state == s)) for b in boards for s in BOARD_USES],
    )  # fmt: skip
    yield (
        "labctl_board_healthy", "gauge", "1 if jobs may run on a board.",
        [({"board": b.name}, float(b.health.may_work)) for b in boards],
    )  # fmt: skip
    yield (
        "labctl_board_contact_timestamp_seconds", "gauge", "Time of the last contact with a board.",
        [({"board": b.name}, at) for b in boards if (at := b.health.contact_at) is not None],
    )  # fmt: skip
    yield (
        "labctl_board_temperature_celsius", "gauge", "Temperature of a board that measures.",
        [
            ({"board": b.name}, b.live.temperature_mc / 1000)
            for b in boards
            if b.live is not None and b.live.temperature_mc is not None
        ],
    )  # fmt: skip
    waiting, damaged = [job for job in jobs if job.waits], [job for job in jobs if job.damaged]
    yield (
        "labctl_queue_jobs", "gauge", "Jobs in the queue.",
        [
            ({"state": "waiting"}, float(len(waiting))),
            ({"state": "running"}, float(len(jobs) - len(waiting) - len(damaged))),
            ({"state": "damaged"}, float(len(damaged))),
        ],
    )  # fmt: skip
    oldest = max((time.time() - job.submitted_at for job in waiting), default=0.0)
    yield (
        "labctl_queue_oldest_wait_seconds", "gauge", "Age of the oldest waiting job.",
        [({}, max(0.0, oldest))],
    )  # fmt: skip
    verdicts = view.repository.answer(Index.verdicts) or {}
    yield (
        "labctl_runs", "gauge", "Runs of the lab by verdict; without one, by state.",
        [({"verdict": verdict}, float(count)) for verdict, count in verdicts.items()],
    )  # fmt: skip
    answers = dashboard.guard_answers()
    yield (
        "labctl_web_requests_total", "counter", "Answers of the dashboard.",
        [({"method": m, "status": str(s)}, float(n)) for (m, s), n in sorted(answers.items())],
    )  # fmt: skip
    yield (
        "labctl_web_sign_in_failures_total", "counter", "Wrong tokens.",
        [({}, float(dashboard.access.failures))],
    )  # fmt: skip
    yield (
        "labctl_web_live_pages", "gauge", "Open pages that are kept up to date.",
        [({}, float(dashboard.watcher.clients))],
    )  # fmt: skip
