"""Common part of the transports' config models. Nothing here imports pydantic."""

from typing import Any

from labctl.checked import split_endpoint
from labctl.errors import ConfigError


def rules(*, required: tuple[str, ...] = ("kind",)) -> dict[str, Any]:
    """Return pydantic's rules for such a dataclass: a frozen mapping without unknown keys.

    The fields that tell models apart have values when one is made by hand; documents name them.
    """

    def require(schema: dict[str, Any]) -> None:
        schema["required"] = [*required, *schema.get("required", ())]
        for name in required:
            schema["properties"][name].pop("default", None)

    return {"extra": "forbid", "use_attribute_docstrings": True, "json_schema_extra": require}


def address_of(text: str, what: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, where ``what`` is. Raises ConfigError."""
    try:
        return split_endpoint(text)
    except ValueError as error:
        raise ConfigError(
            f"not an address of {what}: {text!r}: {error}", hint="write HOST:PORT"
        ) from None
