"""Largest possible answer without a given limit."""

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.base import EndpointClient

#: Tokens that a server adds at the beginning and end of a text.
_AROUND = 4


async def room_for(client: EndpointClient, prompt: str) -> int:
    """Return the number of tokens that the context has left after a prompt.

    For APIs that otherwise end an answer after 16 or 100 tokens. Raises ConfigError if the server
    does not report its context or has no tokenizer.
    """
    context = (await client.identify()).context
    tokens = await client.tokenize(prompt) if context else None
    if context is None or tokens is None:
        raise ConfigError(
            "`unlimited` is not possible here: this API stops after a few tokens by default, and"
            " the server does not report its context size",
            hint="use a large budget instead",
        )
    left = context - len(tokens) - _AROUND
    if left < 1:
        raise ConfigError(f"the prompt of {len(tokens)} tokens fills the context of {context}")
    return left
