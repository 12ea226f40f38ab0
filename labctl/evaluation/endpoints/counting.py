"""A server's count of tokens, held against its own tokenizer."""

from dataclasses import dataclass

from labctl.evaluation.endpoints.base import EndpointClient, Generation

#: A text may be split otherwise than it was generated, and a stop word and the end token have no
#: text: so many tokens, and so large a share of them, may differ.
_TOKENS_APART = 3
_SHARE_APART = 0.02


@dataclass(frozen=True)
class CountCheck:
    """Tokens of one answer as its server reported them, and as its tokenizer splits the text."""

    reported: int
    tokenized: int

    @property
    def agrees(self) -> bool:
        """False where the two cannot be counts of the same answer."""
        apart = abs(self.reported - self.tokenized)
        return apart <= _TOKENS_APART + _SHARE_APART * self.reported


async def check_count(client: EndpointClient, generation: Generation) -> CountCheck | None:
    """Count an answer again; None where its server told no count or has no tokenizer."""
    if generation.completion_tokens is None or generation.counted_by != "usage":
        return None
    tokens = await client.tokenize(generation.text)
    return None if tokens is None else CountCheck(generation.completion_tokens, len(tokens))
