"""The group ``labctl models``: each command is imported when it is used."""

import click

from labctl.cli.commands import Command
from labctl.cli.root import LazyGroup

COMMANDS = {
    "add": Command("Add a model to the lab's models.yaml and fetch it.", "models.add"),
    "quantize": Command("Quantize a model of the lab and add it.", "models.add"),
    "logits": Command("Write a model's logits over a text.", "models.logits"),
    "remove": Command("Remove models from the lab's models.yaml.", "models.catalogue"),
    "list": Command("List the lab's models.", "models.catalogue:list_models"),
    "show": Command("Show the contents of a GGUF file.", "models.show"),
    "fetch": Command("Download or make models on this host.", "models.fetch"),
    "verify": Command("Hash model files again.", "models.fetch"),
    "unlock": Command("Remove the recorded SHA-256 of models.", "models.catalogue"),
}


class ModelsGroup(LazyGroup):
    """The commands of ``labctl models``."""

    lazy = COMMANDS


@click.group(cls=ModelsGroup, epilog="Example: labctl models add llama hf:OWNER/NAME/FILE.gguf")
def models() -> None:
    """Manage the lab's models.

    They are listed in models.yaml; recipes name one as `{lab: NAME}`. models.lock.yaml records the
    SHA-256 of each, so that everyone who shares the lab measures the same bytes.
    """
