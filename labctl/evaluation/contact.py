"""First contact with the servers of an evaluation: started where asked, identified, recorded."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labctl.config.lab import Board, LabFile
from labctl.config.recipe import EngineChoice
from labctl.errors import HostError, LabctlError
from labctl.evaluation.asking import OpenEndpoint
from labctl.evaluation.endpoints.base import (
    EndpointClient,
    GenerationRequest,
    Message,
    ServerIdentity,
)
from labctl.evaluation.endpoints.errors import Refused, TryAgain
from labctl.evaluation.endpoints.opening import open_client, open_monitor
from labctl.evaluation.event_loop import run_async
from labctl.evaluation.likeliest import check_tells
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.recipe_parts import EndpointSource
from labctl.evaluation.servers.started import (
    ServerRequest,
    StartedEndpoint,
    started_endpoint,
)
from labctl.records.evaluation import EndpointRecord
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.observer import Observer
from labctl.transport.base import Transport

_IDENTIFY_SECONDS = 60.0
_HELLO = "Hello"


def start_servers(
    recipe: EvaluationRecipe,
    lab: LabFile,
    folder: Path,
    *,
    observer: Observer,
    connect: Callable[[Board], Transport],
    use: BoardUse,
    stack: ExitStack,
) -> dict[str, StartedEndpoint]:
    """Start the servers of a recipe; ``stack`` stops them.

    Their output is kept below ``folder``; ``use``: user for whom boards are taken. Raises the
    errors of :func:`~labctl.evaluation.servers.started.started_endpoint`.
    """
    started = {}
    for name, endpoint in recipe.endpoints.items():
        if endpoint.start is None:
            continue
        board = lab.board(endpoint.board) if endpoint.start == "board" else None
        if board and endpoint.target not in (None, board.target):
            path = ("endpoints", name, "target")
            raise recipe.refusal(path, f"board {board.name} is a {board.target}")
        observer.note(f"starting {name} on {board.name if board else 'this host'}")
        request = ServerRequest(
            name=name,
            model=endpoint.model,
            models=recipe.models,
            draft=endpoint.draft,
            lora=endpoint.scaled_lora,
            target=endpoint.target,
            # Otherwise concurrent questions would wait for each other in the server.
            parameters={"parallel": recipe.concurrency_of(name), **endpoint.parameters},
            max_seconds=recipe.longest_seconds,
            board=board,
            engine=EngineChoice(name="llama_cpp", task="serve", version=endpoint.version),
            use=use,
        )
        started[name] = stack.enter_context(
            started_endpoint(
                request,
                lab,
                folder / name,
                observer,
                connect=partial(connect, board) if board else None,
            )
        )
    return started


def open_endpoint(
    recipe: EvaluationRecipe, name: str, started: StartedEndpoint | None
) -> OpenEndpoint:
    """Return a client of an endpoint, for use in one event loop. Raises ConfigError."""
    endpoint, connections = recipe.endpoints[name], recipe.concurrency_of(name)
    if started is not None:
        client = open_client(
            api="llama-server",
            address=started.address,
            served_name=started.served_name,
            connections=connections,
        )
    else:
        assert endpoint.url is not None
        assert endpoint.api is not None
        client = open_client(
            api=endpoint.api,
            address=endpoint.url,
            key_env=endpoint.key_env,
            served_name=endpoint.served_name,
            connections=connections,
        )
    again = partial(_again, recipe, name, started) if started else None
    return OpenEndpoint(name, endpoint.model, client, connections, again)


def _again(recipe: EvaluationRecipe, name: str, started: StartedEndpoint) -> EndpointClient:
    """Wait for the link to a server; restart the server if it does not run.

    Raises the errors of :meth:`labctl.evaluation.servers.started.StartedEndpoint.restart`.
    """
    try:
        started.check()
    except LabctlError:
        started.restart()
    return open_endpoint(recipe, name, started).client


@dataclass(frozen=True)
class Contacts:
    """Records of the servers, and ``notes`` on limits of their answers."""

    records: tuple[EndpointRecord, ...]
    notes: tuple[str, ...]


def contact(recipe: EvaluationRecipe, started: dict[str, StartedEndpoint]) -> Contacts:
    """Identify every server. Raises HostError if a server does not answer, ConfigError."""
    return run_async(_contact(recipe, started))


async def _contact(recipe: EvaluationRecipe, started: dict[str, StartedEndpoint]) -> Contacts:
    opened = [open_endpoint(recipe, name, started.get(name)) for name in recipe.endpoints]
    try:
        found = await asyncio.gather(*(_identity(recipe, one) for one in opened))
        notes = [note for _, note in found]
        notes += [await check_tells(recipe, one.name, one.client) for one in opened]
    finally:
        for endpoint in opened:
            await endpoint.client.aclose()
    records = tuple(
        _record(recipe, one.name, identity, started.get(one.name)).model_copy(
            update={"prompt_cache": one.client.prompt_cache}
        )
        for one, (identity, _) in zip(opened, found, strict=True)
    )
    return Contacts(records, tuple(note for note in notes if note is not None))


async def _identity(
    recipe: EvaluationRecipe, endpoint: OpenEndpoint
) -> tuple[ServerIdentity, str | None]:
    """Return the identity of a server, and a note if its ``/health`` denies that it works."""
    try:
        async with asyncio.timeout(_IDENTIFY_SECONDS):
            identity, complaint = await _identified(recipe.endpoints[endpoint.name], endpoint)
        if complaint is not None:
            await _check(recipe, endpoint, complaint)
    except TimeoutError:
        raise HostError(f"endpoint {endpoint.name} sent nothing for a minute") from None
    except TryAgain as error:
        raise HostError(
            f"endpoint {endpoint.name}: {error.message}",
            hint=error.hint or "check that the server runs and its address is right",
            details=error.details,
        ) from error
    if complaint is None:
        return identity, None
    return identity, f"endpoint {endpoint.name} answers, although it says {complaint}"


async def _identified(
    source: EndpointSource, endpoint: OpenEndpoint
) -> tuple[ServerIdentity, str | None]:
    if source.url is None:  # started by labctl, and it was ready
        return await endpoint.client.identify(), None
    monitor = open_monitor(address=source.url, key_env=source.key_env)
    try:
        return await monitor.beside(endpoint.client.identify)
    finally:
        await monitor.aclose()


async def _check(recipe: EvaluationRecipe, endpoint: OpenEndpoint, complaint: str) -> None:
    """Ask for one token. Raises TryAgain if the server does not answer.

    A request decides whether a server works: vLLM with a dead engine lists its models, and a
    gateway may answer 503 for a ``/health`` that it does not know.
    """
    is_chat = recipe.endpoints[endpoint.name].api == "openai-chat"
    request = GenerationRequest((Message("user", _HELLO),) if is_chat else _HELLO, 1)
    try:
        await endpoint.client.generate(request, timeout=recipe.timeouts.answer)
    except Refused:
        return  # it understands requests; its refusals of the real ones will be shown
    except TryAgain as error:
        raise TryAgain(f"{error.message} ({complaint})", hint=error.hint) from error


def _record(
    recipe: EvaluationRecipe, name: str, identity: ServerIdentity, started: StartedEndpoint | None
) -> EndpointRecord:
    if started is not None:
        return started.record
    endpoint = recipe.endpoints[name]
    assert endpoint.api is not None
    served, names = endpoint.served_name, identity.served_names
    if served is not None and names and served not in names:
        raise recipe.refusal(
            ("endpoints", name, "served_name"),
            f"the server has no model {served!r}; it has {', '.join(names[:10])}",
        )
    return EndpointRecord(
        name=name,
        api=endpoint.api,
        address=endpoint.url,
        server=identity.server,
        model=endpoint.model,
        served_name=served or (names[0] if len(names) == 1 else None),
        sha256_proven=False,
        template_sha256=identity.template
        and hashlib.sha256(identity.template.encode()).hexdigest(),
    )


def differences(was: Sequence[EndpointRecord], now: Sequence[EndpointRecord]) -> list[str]:
    """Describe changes of the servers between two contacts: their answers cannot be combined."""
    known, found = {one.name: one for one in was}, []
    for one in now:
        before = known[one.name]
        for what in ("server", "served_name", "template_sha256", "execution"):
            old, new = getattr(before, what), getattr(one, what)
            if None not in (old, new) and old != new:
                label = {"template_sha256": "chat template", "served_name": "model"}.get(what, what)
                found.append(f"the {label} of endpoint {one.name} has changed")
        if [adapter.weights for adapter in before.adapters] != [
            adapter.weights for adapter in one.adapters
        ]:
            found.append(f"the adapters of endpoint {one.name} have changed")
        if before.draft_sha256 != one.draft_sha256:
            found.append(f"the draft of endpoint {one.name} has changed")
    return found
