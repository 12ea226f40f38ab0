"""Ctrl-C while a model is written as JSON: pydantic makes an error of its own of it."""

from typing import Annotated

import pytest
from pydantic import PlainSerializer

from labctl.build.manifest import Recorded
from labctl.config.types import InterruptibleModel
from labctl.config.yaml.document import StrictModel
from labctl.records.base import Record


def interrupted(_value: int) -> str:
    raise KeyboardInterrupt


def unserializable(_value: int) -> str:
    raise ValueError("KeyboardInterrupt: no")


class Written(StrictModel):
    value: Annotated[int, PlainSerializer(interrupted)] = 1


class Kept(Record):
    value: Annotated[int, PlainSerializer(interrupted)] = 1


class Built(Recorded):
    value: Annotated[int, PlainSerializer(interrupted)] = 1


class Outer(Record):
    inner: Kept = Kept()


class Odd(Record):
    value: Annotated[int, PlainSerializer(unserializable)] = 1


@pytest.mark.parametrize(
    "model", [Written(), Kept(), Built(), Outer()], ids=lambda model: type(model).__name__
)
def test_it_stays_ctrl_c(model: InterruptibleModel) -> None:
    with pytest.raises(KeyboardInterrupt):
        model.model_dump_json()
    with pytest.raises(KeyboardInterrupt):
        model.model_dump(mode="json")


def test_another_failure_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="Error calling function"):
        Odd().model_dump_json()
    with pytest.raises(ValueError, match="Error calling function"):
        Odd().model_dump()
