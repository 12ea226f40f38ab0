"""Notes on the range of each model's timing, and on the measurements that would extend it."""

import math
from collections.abc import Iterable, Mapping, Sequence

from labctl.compare.equal_latency.answers import Answers, AnswerSet
from labctl.compare.equal_latency.timing import AnswerTimes
from labctl.compare.equal_latency.words import sentence


def timing_notes(sets: Sequence[AnswerSet], times: Mapping[str, AnswerTimes]) -> list[str]:
    """Return notes on the timing of each model; ``times`` is by model."""
    notes: list[str] = []
    for name, one in times.items():
        timing = one.timing
        cells = [cell for answers in sets if answers.model == name for cell in answers.cells]
        prompt = _longest_prompt(cells)
        if timing.repeats == 1:
            notes.append(
                sentence("{name} was timed once: no interval includes its noise", name=name)
            )
        if not one.has_prefill:
            notes.append(
                sentence("{name}: prefill was not measured, so deadlines are unknown", name=name)
            )
        elif timing.longest_prompt and prompt > timing.longest_prompt:
            notes.append(
                sentence(
                    "{name}: prompts have up to {prompt} tokens, prefill was measured with"
                    " {longest}; its time is taken proportional",
                    name=name,
                    prompt=prompt,
                    longest=timing.longest_prompt,
                )
            )
        last = max((_last_position(cell) for cell in cells), default=0)
        if last > timing.longest_position:
            known = timing.longest_position
            if prompt:
                notes.append(
                    sentence(
                        "{name}: times are measured to position {known}, answers reach {last}:"
                        " measure with a prompt of {prompt} tokens and {tokens} tokens to avoid"
                        " extrapolation",
                        name=name,
                        known=known,
                        last=last,
                        prompt=prompt,
                        tokens=last - prompt,
                    )
                )
            else:
                notes.append(
                    sentence(
                        "{name}: times are measured to position {known}, answers reach {last}:"
                        " measure with {last} tokens to avoid extrapolation",
                        name=name,
                        known=known,
                        last=last,
                    )
                )
    return notes


def _longest_prompt(cells: Iterable[Answers]) -> int:
    known = [cell.prompt_tokens for cell in cells if cell.prompt_tokens is not None]
    return max((int(tokens.max(initial=0)) for tokens in known), default=0)


def _last_position(cell: Answers) -> int:
    """Return the last position of any answer, and the last of one that takes the whole limit."""
    prompts = cell.prompt_tokens
    if prompts is None or not len(prompts):
        return cell.budget or 0
    last = math.ceil(float(prompts.mean())) + (cell.budget or 0)
    if cell.tokens is not None:
        last = max(last, int((prompts + cell.tokens).max()))
    return last
