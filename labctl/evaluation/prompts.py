r"""Prompts of a recipe, and their text for a server.

``raw-chatml`` is the layout of the original experiment, byte for byte as published: ChatML whose
system block is not closed; after the question follows a separate line with ``<|im_end|>``. It
leaves out the blanks that typesetting added (around the hyphens of ``step-by-step``, before the
question). Not published, and so assumed: a line break after ``assistant`` (as in Qwen2.5-Math's
templates), and the budget's sentence on a separate line at the end of the system block. For Llama
3.1 the marks of ChatML are ordinary text.
"""

import hashlib
import json
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from labctl.config.types import Argument, Name
from labctl.config.yaml.document import StrictModel, refuse
from labctl.evaluation.endpoints.base import Message
from labctl.evaluation.question import Question
from labctl.records.evaluation import PromptRecord

Layout = Literal["raw-chatml", "chatml", "chat", "plain"]
Pattern = Literal["step_by_step", "answer_and_verify", "letter", "letter_alone"]
Place = Literal["system", "user", "end"]

_BOXED = "Conclude with your final answer within \\boxed{}."
#: The experiment's two texts, with its line breaks, and two for questions with choices.
PATTERNS: dict[str, str] = {
    "step_by_step": "Follow this pattern to solve the problem:\n"
    f"Provide a revised answer through step-by-step reasoning.\n{_BOXED}",
    "answer_and_verify": "Quick Answer: Give an initial answer via intuition or quick"
    " calculation.\nVerification: Provide a revised answer through step-by-step reasoning and"
    f" correct any mistakes.\n{_BOXED}",
    "letter": "Choose the right answer. Conclude with its letter within \\boxed{}.",
    "letter_alone": "Choose the right answer. Reply with its letter alone.",
}
#: The experiment's sentence.
BUDGET_STATEMENT = "You MUST respond in **UNDER {n} tokens**"
BUDGET_FACTOR = 0.5
END_OF_TURN = "<|im_end|>"
_FIELD = re.compile(r"\{(question|solution|answer|n)\}")


def _with_field(field: str) -> AfterValidator:
    def check(text: str) -> str:
        if f"{{{field}}}" not in text:
            raise ValueError(f"must contain {{{field}}}")
        return text

    return AfterValidator(check)


class Prompt(StrictModel):
    """One form of a question."""

    layout: Layout = "chat"
    """`chat`: messages, which the server puts into the model's own template; `raw-chatml`: the text
    of the original experiment, whose system block is not closed; `chatml`: correct ChatML; `plain`:
    the text alone. All but `chat` are texts that a completion API continues."""
    pattern: Pattern | None = None
    """A text shipped with labctl, instead of `system`: the experiment's `step_by_step` or
    `answer_and_verify`; `letter` and `letter_alone` for questions with choices."""
    choose_by: Literal["generation", "probability"] = "generation"
    """For questions with choices. `generation`: the letter in the answer; `probability`: the letter
    that is the likeliest first token, if the server reports it."""
    system: Argument | None = None
    """Text of the system block."""
    question: Annotated[Argument, _with_field("question")] = "{question}"
    """Text of a question; choices are in `{question}` too, one per line."""
    example: Annotated[Argument, _with_field("answer")] = (
        "{solution}\nFinal answer: \\boxed{{answer}}"
    )
    """Answer of a worked example; without a derivation, the line with `{solution}` is left out. By
    default the letter alone with `choose_by: probability`."""
    examples_as: Literal["turns", "text"] | None = None
    """Worked examples as turns of the chat, or as text before the question; by default turns, and
    text for `plain`."""
    state_budget: bool = False
    """True: the prompt states the limit of tokens, if there is one."""
    budget_statement: Annotated[Argument, _with_field("n")] = BUDGET_STATEMENT
    """Sentence that states it; `{n}` is int(limit x `budget_factor`)."""
    budget_factor: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = BUDGET_FACTOR
    """Share of the limit that is stated: models write longer answers than asked."""
    budget_place: Place = "system"
    """Place of the sentence, on a separate line: at the end of the system block, of the question,
    or of the whole text."""
    stop: tuple[Argument, ...] | None = None
    """Texts that end an answer; by default `<|im_end|>` for both layouts of ChatML, else none."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.pattern is not None and self.system is not None:
            raise refuse("pattern is given too; keep one of them", "system")
        if self.choose_by == "probability":
            if self.state_budget:
                raise refuse("the answer is one token: no budget is needed", "state_budget")
            if self.pattern not in (None, "letter_alone"):
                raise refuse(
                    "with choose_by: probability, pattern must be letter_alone or missing",
                    "pattern",
                )
        if not self.state_budget:
            for key in ("budget_statement", "budget_factor", "budget_place"):
                # Records contain the defaults too.
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise refuse("goes with state_budget: true", key)
        if self.layout == "chat" and self.budget_place == "end":
            raise refuse(
                "a chat has no end of the text: place it in system or user", "budget_place"
            )
        if self.layout == "plain" and self.examples_as == "turns":
            raise refuse("a plain text has no turns", "examples_as")
        return self

    @property
    def is_chat(self) -> bool:
        """True if it is sent as messages; False for a text to continue."""
        return self.layout == "chat"

    @property
    def stop_words(self) -> tuple[str, ...]:
        """Return the texts that end an answer."""
        if self.stop is not None:
            return self.stop
        return (END_OF_TURN,) if self.layout in ("raw-chatml", "chatml") else ()

    def stated(self, budget: int | None) -> int | None:
        """Return the number of tokens that the prompt states for a limit, or None."""
        if not self.state_budget or budget is None:
            return None
        return int(budget * self.budget_factor)

    def record(self, name: Name, examples: tuple[Question, ...] = ()) -> PromptRecord:
        """Return the prompt's record."""
        return PromptRecord(
            name=name,
            layout=self.layout,
            system=_system(self),
            budget_statement=self.budget_statement if self.state_budget else None,
            budget_factor=self.budget_factor if self.state_budget else None,
            stop=self.stop_words,
            choose_by=self.choose_by,
            sha256=_sha256(self, examples),
        )


def render(
    prompt: Prompt, question: Question, examples: tuple[Question, ...], budget: int | None
) -> str | tuple[Message, ...]:
    """Return a question as it is sent: messages for `chat`, else a text, byte for byte.

    ``budget``: limit of generated tokens; None: no limit.
    """
    stated = prompt.stated(budget)
    return _rendered(prompt, question, examples, None if stated is None else str(stated))


def _rendered(
    prompt: Prompt, question: Question, examples: tuple[Question, ...], stated: str | None
) -> str | tuple[Message, ...]:
    system, asked = _system(prompt), _asked(prompt, question)
    pairs = [(_asked(prompt, one), _worked(prompt, one)) for one in examples]
    if prompt.examples_as == "text" or prompt.layout == "plain":
        asked = "\n\n".join([*("\n".join(pair) for pair in pairs), asked])
        pairs = []
    sentence = None
    if stated is not None:
        sentence = _filled(prompt.budget_statement, n=stated)
        if prompt.budget_place == "system":
            system = sentence if system is None else f"{system}\n{sentence}"
        elif prompt.budget_place == "user":
            asked = f"{asked}\n{sentence}"
    if prompt.layout == "chat":
        return _messages(system, pairs, asked)
    if prompt.layout == "plain":
        text = "\n\n".join(filter(None, (system, asked))) + "\n"
    else:
        text = _chatml(system, pairs, asked, closed=prompt.layout == "chatml")
    return text + sentence if sentence and prompt.budget_place == "end" else text


def _system(prompt: Prompt) -> str | None:
    return PATTERNS[prompt.pattern] if prompt.pattern else prompt.system


def _asked(prompt: Prompt, question: Question) -> str:
    choices = (f"{chr(65 + number)}. {text}" for number, text in enumerate(question.choices))
    return _filled(prompt.question, question="\n".join((question.text, *choices)))


def _worked(prompt: Prompt, question: Question) -> str:
    template = prompt.example
    if prompt.choose_by == "probability" and template == Prompt.model_fields["example"].default:
        template = "{answer}"  # like the answer
    if question.solution is None:
        lines = template.split("\n")
        template = "\n".join(line for line in lines if "{solution}" not in line)
    return _filled(template, solution=question.solution or "", answer=question.answer)


def _filled(template: str, **values: str) -> str:
    """Put values into a template once; fields inside a value are not replaced."""
    return _FIELD.sub(lambda field: values.get(field[1], field[0]), template)


def _messages(system: str | None, pairs: list[tuple[str, str]], asked: str) -> tuple[Message, ...]:
    turns = [Message("system", system)] if system is not None else []
    for question, answer in pairs:
        turns += [Message("user", question), Message("assistant", answer)]
    return (*turns, Message("user", asked))


def _chatml(system: str | None, pairs: list[tuple[str, str]], asked: str, *, closed: bool) -> str:
    end = f"{END_OF_TURN}\n" if closed else f"\n{END_OF_TURN}\n"
    blocks = []
    if system is not None:
        blocks.append(f"<|im_start|>system\n{system}{end if closed else chr(10)}")
    for question, answer in pairs:
        blocks.append(f"<|im_start|>user\n{question}{end}<|im_start|>assistant\n{answer}{end}")
    blocks.append(f"<|im_start|>user\n{asked}{end}<|im_start|>assistant\n")
    return "".join(blocks)


def _sha256(prompt: Prompt, examples: tuple[Question, ...]) -> str:
    """Return the SHA-256 of everything added to a question, with its place marked."""
    stated = "{n}" if prompt.state_budget else None
    sent = _rendered(prompt, Question("", "{question}", "{answer}"), examples, stated)
    added = {
        "sent": sent if isinstance(sent, str) else [[m.role, m.content] for m in sent],
        "factor": prompt.budget_factor if prompt.state_budget else None,
        "stop": prompt.stop_words,
    }
    if prompt.choose_by != "generation":
        added["choose_by"] = prompt.choose_by
    return hashlib.sha256(json.dumps(added, sort_keys=True).encode()).hexdigest()
