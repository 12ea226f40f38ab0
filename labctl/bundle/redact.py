"""Replace identities in published files: consistently, and in every written form.

A text has the same replacement everywhere. In JSON it is replaced in the values, also in escaped
form; keys stay. In raw logs a replacement has the same number of bytes as the original, since the
timeline refers to positions in the logs.
"""

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = Any

#: A whole word, not a part of a longer name: `vm` but not `vmlinux` or `kvm.service`.
_ALONE = rb"(?<![A-Za-z0-9_.-])%s(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
#: A host may have a domain: `vm.local`, but not `vm.Q8_0.gguf`, which is a longer name.
_HOST = rb"(?<![A-Za-z0-9_.-])%s(?:\.[A-Za-z0-9][A-Za-z0-9-]*)*+(?![A-Za-z0-9_-])"
#: Fields of records that name a place or a machine; every value is replaced.
_FIELDS = {"host": "host", "serial": "serial", "boot_id": "boot"}
#: Shorter texts are replaced only as whole words: inside other words they mean nothing.
_DISTINCT = 6

#: A word of a folder's name; a person's name can have several, with capitals.
_NAME = rb"[^\\/\s\"':,;<>)\]]+"
_OCTET = rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rb"(?:%s\.){3}%s" % (_OCTET, _OCTET)
_WORDS_OF_KEYS = rb"passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?token"
#: Text up to the same quote, or the end of the line; one group for each quote, escaped and plain.
_QUOTED = rb"|".join(
    form % {b"q": quote}
    for quote in (b'"', b"'")
    for form in (
        rb"\\%(q)s((?:[^%(q)s\\\r\n]|\\(?!%(q)s)[^\r\n]){1,400})",
        rb"%(q)s((?:[^%(q)s\\\r\n]|\\[^\r\n]){1,400})",
    )
)
_WORDS_OF_ADDRESSES = (
    rb"connect(?:ed|ing)? to|connection (?:to|from)|host|server|peer|gateway|addr(?:ess)?|inet|ping"
)


def _is_any(_found: bytes) -> bool:
    return True


def _is_network(found: bytes) -> bool:
    """Return True for the address of another machine, and not for times and names."""
    try:
        address = ipaddress.ip_address(found.decode())
    except ValueError:
        return False
    if address.version == 6 and found.count(b":") < 7 and not re.search(rb"\d", found):
        return False  # `bad::face` is a C++ name
    return not (address.is_loopback or address.is_unspecified)


def _is_private(found: bytes) -> bool:
    """Return True for a private address of four numbers; other such texts may be versions."""
    return _is_network(found) and ipaddress.ip_address(found.decode()).is_private


#: Bounded, and ends at the next mark, so that a log full of first lines costs no more than others.
_PRIVATE_KEY = (
    rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16384}"
    rb"-----END [A-Z ]{0,40}PRIVATE KEY-----"
)
#: Identities by their form: the kind, the pattern (if it has a group, only the group is replaced),
#: and a further check.
_PATTERNS: tuple[tuple[str, bytes, Callable[[bytes], bool]], ...] = (
    ("key", _PRIVATE_KEY, _is_any),
    ("key", rb"\b(?:hf_|gh[oprsu]_|github_pat_|glpat-|A[KS]IA|AIza)[A-Za-z0-9_-]{16,}", _is_any),
    ("key", rb"\b(?:sk|xox[a-z])-[A-Za-z0-9_-]{16,}", _is_any),
    ("key", rb"\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]*", _is_any),
    (
        "key",
        rb"(?i)(?:%s)[a-z0-9_]{0,40}\\?[\"']?\s{0,3}[=:]\s{0,3}(?:%s|([^\s\"'\\;,&<]{3,400}))"
        % (_WORDS_OF_KEYS, _QUOTED),
        _is_any,
    ),
    ("key", rb"_TOKEN=[\"']?([^\s\"'\\;,&<]{16,400})", _is_any),
    (
        "key",
        rb"(?i)\bauthorization\W{1,6}(?:basic|digest|token) ([a-z0-9+/._~-]{4,400}=*)",
        _is_any,
    ),
    ("key", rb"(?i)(?<=bearer )[A-Za-z0-9._~+/-]{16,}=*", _is_any),
    ("key", rb"(?<=://)[^/\s@\"'\\]{1,200}(?=@)", _is_any),
    ("home", rb"(?:/home|/Users)/%s(?:(?: [A-Z]%s){1,3}(?=/))?" % (_NAME, _NAME), _is_any),
    (
        "home",
        rb"\b[A-Za-z]:\\{1,2}(?i:users)\\{1,2}%s(?:(?: [A-Z]%s){1,3}(?=[\\/]))?" % (_NAME, _NAME),
        _is_any,
    ),
    (
        "host",
        rb"(?<![\\\w:])(?:\\{2}([\w.-]{2,63})(?=\\\w)|\\{4}([\w.-]{2,63})(?=\\\\\w))",
        _is_any,
    ),
    (
        "address",
        rb"(?<![0-9A-Za-z:.-])(?:[0-9A-Fa-f]{2}(?::|-(?!:))){5}[0-9A-Fa-f]{2}(?![0-9A-Za-z:-])",
        _is_any,
    ),
    ("address", rb"(?<![0-9A-Za-z.-])%s(?=:\d{1,5}(?!\d))" % _IPV4, _is_network),
    ("address", rb"(?<=[@/])%s(?![0-9.])" % _IPV4, _is_network),
    ("address", rb"(?<![0-9A-Za-z.-])(?<![Vv]ersion )%s(?= port \d)" % _IPV4, _is_network),
    (
        "address",
        rb"(?i)\b(?:%s)[ =:]{1,2}(%s)(?![0-9A-Za-z]|\.\d)" % (_WORDS_OF_ADDRESSES, _IPV4),
        _is_network,
    ),
    ("address", rb"(?<![0-9A-Za-z.-])%s(?![0-9A-Za-z]|\.\d)" % _IPV4, _is_private),
    (
        "address",
        rb"(?<![0-9A-Za-z:.])[0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]{3,}(?![0-9A-Za-z:.])",
        _is_network,
    ),
    (
        "address",
        rb"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+\b",
        _is_any,
    ),
)


@dataclass(frozen=True)
class Secret:
    """A text to leave out, and its kind: ``host``, ``user``, ``home``, ``lab``, ``path``,
    ``serial``, ``address``, ``key``.
    """

    kind: str
    text: str


@dataclass
class Redactor:
    """Replaces secrets. ``counts``: number of replaced texts of each kind, by entry."""

    secrets: Iterable[Secret]
    #: Words of the experiment: a host or user with such a name is not replaced where it stands
    #: alone.
    vocabulary: frozenset[str] = frozenset()
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Whole words that were kept because the experiment uses them too.
    kept: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        found: dict[str, str] = {}
        for secret in self.secrets:
            if secret.text.strip("/") and secret.text not in found:
                found[secret.text] = secret.kind
        # Longest first: the path of a lab below a home is a lab.
        self._rules: list[tuple[str, re.Pattern[bytes], Callable[[bytes], bool]]] = [
            (kind, pattern, _is_any)
            for text, kind in sorted(found.items(), key=lambda one: (-len(one[0]), one))
            if (pattern := self._pattern(kind, text)) is not None
        ]
        self._rules += [
            (kind, re.compile(pattern), is_meant) for kind, pattern, is_meant in _PATTERNS
        ]

    def _pattern(self, kind: str, text: str) -> re.Pattern[bytes] | None:
        if text in self.vocabulary and "/" not in text:
            self.kept.add(f"{kind} {text!r}")
            return None
        forms = b"|".join(
            re.escape(one) for one in sorted(_forms(text), key=lambda f: (-len(f), f))
        )
        if kind == "host":
            return re.compile(_HOST % (rb"(?:%s)" % forms))
        if "/" in text or "\\" in text:  # a path, and everything below it
            # `/work` may be part of another path; `-I/home/alice` is the path itself.
            before = rb"(?<![A-Za-z0-9_.\\-])" if text.rfind("/") == 0 else b""
            return re.compile(before + rb"(?:%s)(?![A-Za-z0-9_-]|\.[A-Za-z0-9])" % forms)
        if kind in ("user", "lab") or len(text) < _DISTINCT:
            return re.compile(_ALONE % (rb"(?:%s)" % forms))
        return re.compile(forms)

    def raw(self, entry: str, content: bytes) -> bytes:
        """Return the bytes of a log with replacements of the original lengths."""
        return self._replace(entry, content, _same_length)

    def text(self, entry: str, content: str) -> str:
        """Return a text for people, with replacements such as ``<host>``."""
        raw = content.encode(errors="surrogateescape")
        return self._replace(entry, raw, _named).decode(errors="surrogateescape")

    def value(self, entry: str, value: Json) -> Json:
        """Return a JSON value with replacements in its texts, without fields of identity."""
        if isinstance(value, Mapping):
            return {name: self._field(entry, name, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(entry, inner) for inner in value]
        return self.text(entry, value) if isinstance(value, str) else value

    def json(self, entry: str, content: bytes, *, lines: bool = False) -> bytes:
        """Return a JSON document, or JSON Lines; treat anything else as a raw log."""
        try:
            documents = [json.loads(line) for line in content.splitlines()] if lines else None
            whole = None if lines else json.loads(content)
        except ValueError:
            return self.raw(entry, content)
        if documents is not None:
            return b"".join(_dumped(self.value(entry, one)) + b"\n" for one in documents)
        return _dumped(self.value(entry, whole), indent=2) + b"\n"

    def _field(self, entry: str, name: str, value: Json) -> Json:
        if name in _FIELDS and isinstance(value, str) and value:
            self.counts[entry, _FIELDS[name]] += 1
            return f"<{_FIELDS[name]}>"
        return self.value(entry, value)

    def _replace(self, entry: str, content: bytes, form: Callable[[str, bytes], bytes]) -> bytes:
        for kind, pattern, is_meant in self._rules:

            def replaced(
                match: re.Match[bytes],
                kind: str = kind,
                is_meant: Callable[[bytes], bool] = is_meant,
            ) -> bytes:
                found = match[match.lastindex or 0]
                if not is_meant(found):
                    return match[0]
                if kind == "host" and found.decode(errors="replace") in self.vocabulary:
                    return match[0]  # `tiny.gguf`, on a host `tiny`
                self.counts[entry, kind] += 1
                begin, end = (place - match.start() for place in match.span(match.lastindex or 0))
                return match[0][:begin] + form(kind, found) + match[0][end:]

            content = pattern.sub(replaced, content)
        return content


def _forms(text: str) -> Iterator[bytes]:
    """Yield the forms in which programs write a text: plain, and escaped in JSON."""
    plain = text.encode(errors="surrogateescape")
    seen = {plain}
    yield plain
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for form in (escaped, escaped.replace("/", "\\/"), escaped.replace("/", "\\u002f")):
            raw = form.encode(errors="surrogateescape")
            if raw not in seen:
                seen.add(raw)
                yield raw


def _named(kind: str, _found: bytes) -> bytes:
    return f"<{kind}>".encode()


def _same_length(kind: str, found: bytes) -> bytes:
    filler = len(found) - len(kind) - 2
    return b"x" * len(found) if filler < 0 else f"<{kind}{'x' * filler}>".encode()


def _dumped(value: Json, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="surrogatepass")
