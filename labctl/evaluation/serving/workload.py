"""Requests of a load test: questions of a data set, or made-up texts of given lengths.

All made-up texts of a test begin differently, so a server cannot use its prompt cache.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labctl.evaluation.endpoints.base import EndpointClient, Message
from labctl.evaluation.prompts import Prompt, render
from labctl.evaluation.question import Dataset, Question
from labctl.records.serving import LengthRange

#: Short English words; each is one token, with its leading space, in the vocabularies of Llama,
#: Qwen, GPT and SmolLM. If the server has a tokenizer, words that are not one token are left out.
_TEXT = """\
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number
night point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law car
city name president team minute idea body information back parent face others level office door
health person art war history party result change morning reason research girl guy moment air
teacher force education foot boy age policy music market sense nation plan college interest death
experience effect use class control field development"""
WORDS = tuple(_TEXT.split())


@dataclass(frozen=True)
class Asked:
    """One request as it is sent. ``prompt_tokens`` None: its length is not known in advance."""

    prompt: str | tuple[Message, ...]
    prompt_tokens: int | None
    output_tokens: int


#: Returns a request by its number (from 1) in a stage and the seed of the stage.
Workload = Callable[[int, int], Asked]


def of_dataset(dataset: Dataset, prompt: Prompt, output: LengthRange) -> Workload:
    """Return the questions of a data set, in order, starting again after the last."""

    def ask(seed: int, number: int) -> Asked:
        question = dataset.questions[(number - 1) % len(dataset.questions)]
        source = random.Random(f"lengths {seed} {number}")  # noqa: S311 - no secret
        tokens = source.randint(output.low, output.high)
        return Asked(render(prompt, question, dataset.examples, tokens), None, tokens)

    return ask


def made_up(
    words: Sequence[str], prompt: Prompt, prompt_tokens: LengthRange, output: LengthRange
) -> Workload:
    """Return texts of ``words``: one word per wanted token, not counting the prompt's own text."""

    def ask(seed: int, number: int) -> Asked:
        source = random.Random(f"lengths {seed} {number}")  # noqa: S311 - no secret
        length = source.randint(prompt_tokens.low, prompt_tokens.high)
        tokens = source.randint(output.low, output.high)
        text = " ".join(source.choices(words, k=length))
        return Asked(render(prompt, Question(str(number), text, ""), (), tokens), length, tokens)

    return ask


async def words_of_one_token(client: EndpointClient) -> tuple[tuple[str, ...], bool]:
    """Return words of one token each, and True if the server's tokenizer confirmed it.

    Without a tokenizer all words are returned. Raises the client's errors.
    """
    whole = await client.tokenize(" " + " ".join(WORDS))
    if whole is None:
        return tuple(WORDS), False
    nothing = await client.tokenize("") or ()  # special tokens put before every text
    if len(whole) - len(nothing) == len(WORDS):
        return tuple(WORDS), True
    single = []
    for word in WORDS:
        pair = await client.tokenize(f" {word} {word}")
        if pair is not None and len(pair) - len(nothing) == 2:
            single.append(word)
    return (tuple(single), True) if len(single) >= 10 else (tuple(WORDS), False)
