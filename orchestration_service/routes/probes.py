"""What a cluster asks of each replica: is it alive, may it be given requests, how much has it to do.

These routes have a port of their own and need no key: whatever can reach it is part of the cluster. They are no part of the API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestration_service.errors import StoreError
from orchestration_service.version import service_version
from orchestration_service.vitals import Vitals

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text format of Prometheus."""


def probe_app(vitals: Vitals) -> Starlette:
    """Return the application of the probes' port.

    Args:
        vitals: Of the replica that is asked about.
    """

    async def live(_: Request) -> Response:
        return _state(200, vitals.stage)

    async def ready(_: Request) -> Response:
        trouble = await vitals.trouble()
        return _state(200 if trouble is None else 503, vitals.stage, trouble)

    async def metrics(_: Request) -> Response:
        return Response("".join(await _metrics(vitals)), media_type=METRICS_TYPE)

    return Starlette(routes=[Route("/live", live), Route("/ready", ready), Route("/metrics", metrics)])


def _state(status: int, stage: str, trouble: str | None = None) -> Response:
    told = {"stage": stage} if trouble is None else {"stage": stage, "trouble": trouble}
    return Response(json.dumps(told), status, {"Cache-Control": "no-store"}, "application/json")


async def _metrics(vitals: Vitals) -> list[str]:
    load = vitals.load
    lines = [
        *_gauge("turns_running", "Turns this replica works on.", load.running),
        *_gauge("turns_waiting", "Turns accepted here that wait for the turn before them in their conversation.", load.waiting),
        *_gauge("draining", "1 once this replica was told to end.", int(vitals.stage == "draining")),
        *_gauge(f'build_info{{version="{service_version()}"}}', "The version, as a label.", 1),
    ]
    try:
        unfinished = await vitals.unfinished()
    except StoreError:
        return lines  # no figure, rather than one that lets an autoscaler take replicas away
    return [*lines, *_gauge("turns_unfinished", "Turns in progress in the whole installation, the same at each replica.", unfinished)]


def _gauge(name: str, meaning: str, value: int) -> Iterator[str]:
    plain = name.partition("{")[0]
    yield f"# HELP claude_code_{plain} {meaning}\n# TYPE claude_code_{plain} gauge\nclaude_code_{name} {value}\n"
