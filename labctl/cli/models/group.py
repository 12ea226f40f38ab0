"""The group ``labctl models``: each command is imported when it is used."""

import click

from labctl.cli.root import LazyGroup

#: name -> (module, attribute, one line of help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "add": ("labctl.cli.models.add", "add", "Add a model to the lab's models.yaml and fetch it."),
    "quantize": ("labctl.cli.models.add", "quantize", "Quantize a model of the lab and add it."),
    "logits": ("labctl.cli.models.logits", "logits", "Write a model's logits over a text."),
    "remove": (
        "labctl.cli.models.catalogue",
        "remove",
        "Remove models from the lab's models.yaml.",
    ),
    "list": ("labctl.cli.models.catalogue", "list_models", "List the lab's models."),
    "show": ("labctl.cli.models.show", "show", "Show the contents of a GGUF file."),
    "fetch": ("labctl.cli.models.fetch", "fetch", "Download or make models on this host."),
    "verify": ("labctl.cli.models.fetch", "verify", "Hash model files again."),
    "unlock": ("labctl.cli.models.catalogue", "unlock", "Remove the recorded SHA-256 of models."),
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
