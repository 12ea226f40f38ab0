"""The most that an answer can be where no limit is named."""

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.base import EndpointClient

#: Tokens that a server puts around a text: its beginning, its end.
_AROUND = 4


async def room_for(client: EndpointClient, prompt: str) -> int:
    """Return how many tokens the context has left after a prompt.

    Some APIs end an answer after 16 or 100 tokens where no limit is named: they are given this
    one. Raises ConfigError where the server tells no context or has no tokenizer.
    """
    context = (await client.identify()).context
    tokens = await client.tokenize(prompt) if context else None
    if context is None or tokens is None:
        raise ConfigError(
            "no limit cannot be asked for: by default this api ends an answer after a few tokens,"
            " and the server does not tell the size of its context",
            hint="name a large budget instead of none",
        )
    left = context - len(tokens) - _AROUND
    if left < 1:
        raise ConfigError(f"the prompt of {len(tokens)} tokens fills the context of {context}")
    return left
