"""The server of a load test: already running, or started by labctl."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labctl.config.lab import Board, LabFile
from labctl.config.recipe import EngineChoice
from labctl.evaluation.endpoints.opening import Api
from labctl.evaluation.serving.recipe import ENDPOINT, LoadTestRecipe
from labctl.http import without_login
from labctl.records.evaluation import EndpointRecord
from labctl.records.trial import ModelIdentity
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.observer import Observer
from labctl.transport.base import Transport


@dataclass(frozen=True)
class Served:
    """The server under load. ``check`` raises the reason if the server no longer serves."""

    api: Api
    address: str
    key_env: str | None
    served_name: str | None
    record: EndpointRecord
    model: ModelIdentity | None
    check: Callable[[], None] = lambda: None


@contextmanager
def serving(
    recipe: LoadTestRecipe,
    lab: LabFile,
    folder: Path,
    observer: Observer,
    connect: Callable[[Board], Transport] | None,
    *,
    use: BoardUse,
) -> Iterator[Served]:
    """Yield the server of a recipe; stop it at the end if labctl started it.

    ``folder`` gets the output of a started server; ``use`` says for whom a board is taken. Raises
    the errors of :func:`labctl.evaluation.servers.started.started_endpoint`.
    """
    source = recipe.endpoint
    declared = recipe.models[source.model].declared
    if source.url is not None:
        assert source.api is not None
        assert declared is None or declared.name
        model = None
        if declared is not None:
            model = ModelIdentity(
                key=source.model,
                file="",
                sha256=declared.sha256 or "",
                size_bytes=None,
                name=declared.name,
            )
        record = EndpointRecord(
            name=ENDPOINT,
            api=source.api,
            address=without_login(source.url),
            model=source.model,
            served_name=source.served_name,
            sha256_proven=False,
        )
        yield Served(source.api, source.url, source.key_env, source.served_name, record, model)
        return
    from labctl.evaluation.servers.started import ServerRequest, started_endpoint

    board = lab.board(source.board) if source.start == "board" else None
    request = ServerRequest(
        name=ENDPOINT,
        model=source.model,
        models=recipe.models,
        draft=source.draft,
        lora=source.scaled_lora,
        parameters=source.parameters,
        max_seconds=recipe.longest_seconds,
        board=board,
        engine=EngineChoice(name="llama_cpp", task="serve", version=source.version),
        target=source.target,
        use=use,
    )
    opened = None if board is None or connect is None else (lambda: connect(board))
    with started_endpoint(request, lab, folder, observer, opened) as started:
        for note in started.notes:
            observer.note(f"note: {note}")
        yield Served(
            "llama-server",
            started.address,
            None,
            started.served_name,
            started.record,
            started.model,
            started.check,
        )
