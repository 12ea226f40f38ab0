"""Check of a server's token count against its own tokenizer."""

from dataclasses import dataclass

from labctl.evaluation.endpoints.base import EndpointClient, Generation

#: Number of tokens and share of tokens that may differ: a tokenizer may split a text into other
#: tokens than it was generated from, and a stop word and the end token have no text.
_TOKENS_APART = 3
_SHARE_APART = 0.02


@dataclass(frozen=True)
class CountCheck:
    """Numbers of tokens of one answer, by its server's report and by its tokenizer."""

    reported: int
    tokenized: int

    @property
    def agrees(self) -> bool:
        """False if the two cannot be counts of the same answer."""
        apart = abs(self.reported - self.tokenized)
        return apart <= _TOKENS_APART + _SHARE_APART * self.reported


async def check_count(client: EndpointClient, generation: Generation) -> CountCheck | None:
    """Count an answer again; None if its server has no count or no tokenizer."""
    if generation.completion_tokens is None or generation.counted_by != "usage":
        return None
    tokens = await tokens_of(client, generation.text, generation.thoughts)
    reported = generation.completion_tokens - generation.hidden_tokens
    return None if tokens is None else CountCheck(reported, len(tokens))


async def tokens_of(client: EndpointClient, text: str, thoughts: str) -> tuple[int, ...] | None:
    """Return the ids of the tokens of an answer and of its thoughts; None without a tokenizer."""
    tokens = await client.tokenize(text)
    if tokens is None or not thoughts:
        return tokens
    before = await client.tokenize(thoughts)
    return None if before is None else (*before, *tokens)
