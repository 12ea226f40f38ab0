"""Servers that labctl starts for an evaluation, on this host or on a board.

Only such a server proves a model's hash: its file was hashed, and on a board it is the store's
copy. The server is always stopped. If the controller was killed, a server on a board stops at its
time limit, or when this host uses the board again.
"""

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from labctl.board.agent import LINK_LOSSES
from labctl.board.facts import probe
from labctl.config.lab import Board, LabFile
from labctl.config.models import ModelSource
from labctl.config.recipe import EngineChoice
from labctl.config.recipe_parts import Scalar
from labctl.config.target import load_target
from labctl.deploy.plan import refuse
from labctl.engines.base import EngineParameters, Inputs
from labctl.engines.server_lifecycle import Server, ServerHost, serve
from labctl.engines.this_host import ThisHost
from labctl.errors import ConfigError
from labctl.evaluation.recipe_parts import READY_SECONDS
from labctl.files import host_writes
from labctl.performance.prediction import ModelWorkload, Rates
from labctl.records.board import BoardFacts
from labctl.records.evaluation import EndpointRecord
from labctl.records.run import ArtifactIdentity
from labctl.records.trial import DraftedModel, ModelIdentity
from labctl.retry import RETRY_SECONDS, retry_infra
from labctl.runs.board.deploy_preview import missing_objects, sending, take_and_send
from labctl.runs.board.lab_lease import SERVE, BoardUse
from labctl.runs.board.server_host import BoardServers
from labctl.runs.board.session import BoardSession, hold_board
from labctl.runs.inputs.servers import ServerFiles, WantedServer
from labctl.runs.observer import Observer
from labctl.runs.planning.memory_fit import MemoryFit
from labctl.transport.base import Transport
from labctl.transport.local import LocalTransport

_FACTS_SECONDS = 20.0


@dataclass(frozen=True)
class ServerRequest:
    """A server requested by a recipe.

    ``name``: the endpoint's key. ``model`` and ``draft``: keys of ``models``. ``lora``: files of
    adapters, each with its scale. ``board`` None: this host.
    ``target``: target of the program's build, by default the machine's own. ``max_seconds``:
    longest run time of the server, also if its controller dies. ``use`` says for whom, and for
    which job and run, a board is taken.
    """

    name: str
    model: str
    models: Mapping[str, ModelSource]
    parameters: Mapping[str, Scalar]
    max_seconds: float
    draft: str | None = None
    lora: tuple[tuple[str, float], ...] = ()
    board: Board | None = None
    engine: EngineChoice = field(
        default_factory=lambda: EngineChoice(name="llama_cpp", task="serve")
    )
    api: str = "llama-server"
    target: str | None = None
    ready_within: float = READY_SECONDS
    use: BoardUse = SERVE

    def program_target(self, lab_root: Path) -> str:
        """Return the target of the program's build. Raises ConfigError if it cannot run there."""
        own = self.board.target if self.board else f"host-{platform.machine()}"
        target = self.target or own
        where = f"board {self.board.name}, a {own}" if self.board else "this host"
        if target != own and (self.board or not load_target(target, lab_root).runs_here):
            raise ConfigError(
                f"endpoint {self.name}: programs for target {target} do not run on {where}",
                hint=f"leave out target, or use {own}",
            )
        return target


@dataclass
class StartedEndpoint:
    """A server that was ready; it may have ended since then.

    ``notes``: chosen parameters, and reasons for a slow server.
    """

    record: EndpointRecord
    model: ModelIdentity
    artifact: ArtifactIdentity | None
    facts: BoardFacts
    notes: tuple[str, ...]
    _start: Callable[[], AbstractContextManager[Server]]
    _renew: Callable[[], object]
    _server: Server
    _serving: ExitStack

    @property
    def address(self) -> str:
        """Address of the server for this host; it changes with :meth:`restart`."""
        return self._server.running.address

    @property
    def served_name(self) -> str:
        """Name of the model in its API; it changes with :meth:`restart`."""
        return self._server.name

    def check(self) -> None:
        """Raise the reason why it no longer serves; return if it runs.

        Raises BoardRebooted, LeaseLost, LinkError (the link stays lost), ProgramFailed, or the
        engine's error for its last output.
        """
        self._server.check()

    def restart(self) -> None:
        """Stop what is left of it, wait for its board (if any), and restart it.

        The caller limits the number of restarts. Raises the errors of :func:`started_endpoint`.
        """
        self._serving.close()
        self._renew()
        self._server = self._serving.enter_context(self._start())


@contextmanager
def started_endpoint(
    request: ServerRequest,
    lab: LabFile,
    folder: Path,
    observer: Observer,
    connect: Callable[[], Transport] | None = None,
) -> Iterator[StartedEndpoint]:
    """Start a server, and yield it when it is ready; stop it at the end.

    Its output is kept below ``folder``, one folder per start. ``connect`` opens the link of the
    board. A board serves one model at a time, and is leased meanwhile. It is contacted before a
    model is fetched, and free during the fetch.

    Raises ConfigError (wrong parameters, a program that is not built, a model that does not fit in
    memory), BoardBusy, LeaseLost, LinkError, BoardError, ProgramTimeout (not ready in time),
    ProgramFailed, and what :func:`labctl.models.resolve.resolve` raises.
    """

    @contextmanager
    def held_board(board: Board) -> Iterator[BoardSession]:
        assert connect is not None  # a board has a link
        purpose, seconds = f"serve {request.model}", request.max_seconds
        use = replace(request.use, purpose=purpose, max_seconds=seconds)
        with connect() as transport, hold_board(board, transport, lab, use) as held:
            held.claim.refuse_if_taken()
            yield held

    def look() -> None:
        if request.board is not None:
            with held_board(request.board) as held:
                held.bring_agent(sending(observer))

    target = request.program_target(lab.root)
    wanted = WantedServer(
        request.engine,
        target,
        request.models,
        request.model,
        request.parameters,
        draft=request.draft,
        lora=request.lora,
    )
    files = wanted.find(lab.root, observer.step, before_fetch=look)
    if request.board is None:
        facts = probe(LocalTransport(), workdir=str(lab.root), timeout=_FACTS_SECONDS)
        inputs = Inputs(
            _host_program(files),
            str(files.model.path),
            draft=str(files.draft.path) if files.draft else None,
            adapters=tuple((str(file.local), one.scale) for file, one in files.adapters),
            cpus=facts.cpus_allowed,
        )
        with _started(request, files, _Machine(facts, inputs, _on_this_host(folder))) as started:
            yield started
        return
    with held_board(request.board) as held:
        yield from _served_by_board(request, files, held, folder, observer)


def _served_by_board(
    request: ServerRequest,
    files: ServerFiles,
    held: BoardSession,
    folder: Path,
    observer: Observer,
) -> Iterator[StartedEndpoint]:
    missing, problems = missing_objects(held, files.objects)
    refuse(problems, held.board.name)
    held.bring_agent(sending(observer))
    _fitting(request, files, held.facts, held.rates)  # before gigabytes are sent
    held.survivors.note = observer.note
    _, paths = take_and_send(held, missing, observer)
    program = files.program.file
    inputs = Inputs(
        files.program.tool.name if program is None else paths[program.sha256],
        paths[files.model.identity.sha256],
        draft=paths[files.draft.identity.sha256] if files.draft else None,
        adapters=tuple((paths[file.sha256], one.scale) for file, one in files.adapters),
        cpus=held.facts.cpus_allowed,
    )

    def host() -> BoardServers:
        servers = BoardServers(
            held,
            _next_folder(folder),
            request.max_seconds,
            observer.link_lost,
            observer.note,
        )
        servers.clear()
        return servers

    def renew() -> None:
        retry = partial(
            retry_infra, on=LINK_LOSSES, timeout=RETRY_SECONDS, on_retry=observer.link_lost
        )
        held.renew(retry)
        held.take_lease()  # this ends a server that may still run

    machine = _Machine(held.facts, inputs, host, renew, held.rates)
    with _started(request, files, machine) as started:
        yield started


@dataclass(frozen=True)
class _Machine:
    """A machine with the server's files. ``renew`` makes it usable again after a restart."""

    facts: BoardFacts
    inputs: Inputs
    host: Callable[[], ServerHost]
    renew: Callable[[], object] = lambda: None
    rates: Rates | None = None


@contextmanager
def _started(
    request: ServerRequest, files: ServerFiles, machine: _Machine
) -> Iterator[StartedEndpoint]:
    parameters, notes = _fitting(request, files, machine.facts, machine.rates)

    def start() -> AbstractContextManager[Server]:
        return serve(
            files.engine,
            files.program.tool,
            parameters,
            machine.inputs,
            host=machine.host(),
            ready_within=request.ready_within,
        )

    with ExitStack() as serving:
        server = serving.enter_context(start())
        identity = server.identify()
        template = identity.template
        record = EndpointRecord(
            name=request.name,
            api=request.api,
            server=identity.version,
            model=request.model,
            sha256_proven=True,
            board=request.board and request.board.name,
            execution=machine.facts.execution,
            parameters=parameters.model_dump(mode="json", exclude_none=True),
            draft_sha256=files.draft and files.draft.identity.sha256,
            adapters=files.model.identity.adapters,
            template_sha256=template and hashlib.sha256(template.encode()).hexdigest(),
        )
        yield StartedEndpoint(
            record,
            files.model.identity,
            files.artifact,
            machine.facts,
            (*files.program.notes, *notes),
            start,
            machine.renew,
            server,
            serving,
        )


def _fitting(
    request: ServerRequest, files: ServerFiles, facts: BoardFacts, rates: Rates | None
) -> tuple[EngineParameters, tuple[str, ...]]:
    """Choose the open parameters, and compare the needed with the available memory.

    Raises ConfigError if the kernel would kill the server; if it is only slow, it gets a note.
    """
    engine, model = files.engine, files.model.identity
    if files.draft:
        model = DraftedModel.of(model, files.draft.identity)
    resolved = engine.resolved(files.program.tool, request.parameters, facts, model)
    need = engine.memory(resolved.parameters, model)
    if need is None or model.bytes_per_token is None:
        return resolved.parameters, (*resolved.notes, f"{model.key}: memory need unknown")
    workload = engine.roles.workload(resolved.parameters.model_dump())
    fit = MemoryFit.of(request.name, ModelWorkload.of(model, need, workload), None, facts, rates)
    warning = fit.warning()
    if fit.total_bytes is not None and need.anonymous_bytes > fit.total_bytes:
        raise ConfigError(
            f"{request.name} does not fit: {fit.message()}",
            hint="choose a smaller model or context, or fewer parallel questions",
        )
    return resolved.parameters, (*resolved.notes, *((warning,) if warning else ()))


def _host_program(files: ServerFiles) -> str:
    program = files.program.file
    return files.program.tool.name if program is None else str(program.local)


def _on_this_host(folder: Path) -> Callable[[], ThisHost]:
    def host() -> ThisHost:
        made = _next_folder(folder)
        with host_writes(made):
            made.mkdir(parents=True)
        return ThisHost(made)

    return host


def _next_folder(folder: Path) -> Path:
    """Return a folder for the next start: 1, 2, ..."""
    number = 1
    while (folder / str(number)).exists():
        number += 1
    return folder / str(number)
