"""One evaluation: questions, endpoints, answers and grades."""

from typing import Literal

from pydantic import Field, JsonValue

from labctl.records.base import FileRecord, Moment, NumberedRecord, Record
from labctl.records.board import Execution
from labctl.records.run import RunEnd
from labctl.records.trial import AdapterIdentity, Failure, ModelIdentity

#: End of a generation: by the model or a stop word, or by the limit of tokens.
FinishReason = Literal["stop", "length", "unknown"]
#: Source of a token count: the server's `usage`, its tokenizer, or the pieces of its stream.
TokenCounter = Literal["usage", "tokenizer", "stream"]
#: Load of a server while truncated answers are checked against real limits.
TruncationSlots = Literal["one", "concurrent"]


class DatasetRecord(Record):
    """The questions of an evaluation."""

    name: str
    source: str = Field(description="file or address that it was read from, without a login")
    sha256: str = Field(description="of the file as read")
    split: str | None = None
    size: int = Field(description="number of questions in the file")
    questions: tuple[str, ...] = Field(description="ids of the questions asked, in their order")
    subset_seed: int | None = Field(None, description="None: the first ones, in the file's order")
    shots: int = Field(0, description="number of worked examples before each question")


class QuestionRecord(FileRecord):
    """A line of ``questions.jsonl``: a question as it was asked, or a worked example."""

    id: str
    text: str
    answer: str = Field(description="the right answer alone; a letter where there are choices")
    choices: tuple[str, ...] = ()
    solution: str | None = Field(None, description="derivation of the answer")
    example: bool = Field(default=False, description="True: a worked example, not asked")


class PromptRecord(Record):
    """One form of a question."""

    name: str = Field(description="its key in the recipe")
    layout: str = Field(
        description="raw-chatml: as in the original experiment, its system block not closed;"
        " chatml: corrected; chat: the model's own template; plain: the text alone"
    )
    system: str | None = None
    budget_statement: str | None = Field(
        None, description="sentence that states the budget, `{n}` = tokens; None: it is not stated"
    )
    budget_factor: float | None = Field(None, description="n = int(budget x factor)")
    stop: tuple[str, ...] = ()
    choose_by: Literal["generation", "probability"] = Field(
        "generation", description="probability: the letter that is the likeliest first token"
    )
    sha256: str = Field(description="of all that the prompt adds to a question")


class EndpointRecord(Record):
    """A server that answered questions."""

    name: str = Field(description="its key in the recipe")
    api: str = Field(description="openai-chat, openai-completions, llama-server")
    address: str | None = Field(
        None, description="without a login; None: labctl started it, on a port of the moment"
    )
    server: str | None = Field(None, description="program and version, as it reports itself")
    model: str = Field(description="key of the model that it serves")
    served_name: str | None = Field(None, description="name of the model in its API")
    sha256_proven: bool = Field(
        description="True if labctl started the server with this file; else the model is as"
        " declared in the recipe"
    )
    board: str | None = Field(None, description="board that it runs on; None: a host")
    execution: Execution | None = Field(None, description="None: labctl did not start it")
    parameters: dict[str, JsonValue] = Field(
        default_factory=dict, description="parameters of the server that labctl started"
    )
    draft_sha256: str | None = Field(
        None, description="of the smaller model that guesses its tokens"
    )
    adapters: tuple[AdapterIdentity, ...] = Field(
        (), description="low-rank adapters of the server that labctl started"
    )
    template_sha256: str | None = Field(
        None, description="of the model's chat template, as the server reports it"
    )
    prompt_cache: bool | None = Field(
        None,
        description="False: each request asked the server to keep nothing of earlier prompts;"
        " None: as the server is set",
    )


class SamplingRecord(Record):
    """Choice of each token. Temperature 0 takes the likeliest token."""

    temperature: float
    top_p: float | None = None
    seed: int | None = None
    samples: int = Field(1, description="generations for each question")


class EvaluationRecord(NumberedRecord, FileRecord):
    """``evaluation.json``: written before the first question is asked."""

    id: str
    recipe: str
    recipe_resolved: dict[str, JsonValue]
    settings: tuple[str, ...] = Field(
        (), description="changes to the recipe as written, on the command line: `--set limit=8`"
    )
    dataset: DatasetRecord
    models: tuple[ModelIdentity, ...] = Field(
        description="sha256 is empty if neither a file nor the recipe has it"
    )
    prompts: tuple[PromptRecord, ...]
    endpoints: tuple[EndpointRecord, ...]
    sampling: SamplingRecord
    budgets: tuple[int | None, ...] = Field(
        description="limits of generated tokens, ascending; None (last) = no limit"
    )
    graders: tuple[str, ...]
    variants: tuple[str, ...] = Field(description="MODEL/PROMPT, in the recipe's order")
    model_budgets: dict[str, tuple[int | None, ...]] = Field(
        default_factory=dict,
        description="model -> its own limits, where limits are a time; those at one position are"
        " the same time. Empty: `budgets` are those of all models",
    )
    budget_seconds: tuple[float | None, ...] = Field(
        (), description="the time of each position; None = no limit"
    )
    token_seconds: dict[str, float] = Field(
        default_factory=dict, description="model -> time per token in s that made its limits"
    )
    token_seconds_from: str | None = Field(
        None, description="id of the timing run that measured it; None: the recipe states it"
    )
    planned: int = Field(
        description="number of generations, if all endpoints report the ends of tokens"
    )
    plan_notes: tuple[str, ...] = ()
    labctl_version: str
    lab_revision: str | None = None
    host: str
    job: str | None = Field(None, description="id of the run's job in the queue")
    started: Moment


class GenerationRecord(FileRecord):
    """A line of ``generations.jsonl``: one answer as received."""

    question: str = Field(description="id in the data set")
    variant: str = Field(description="MODEL/PROMPT")
    sample: int = Field(1, description="from 1")
    max_tokens: int | None = Field(description="limit that was asked for; None = no limit")
    stated_budget: int | None = Field(
        None, description="tokens that the prompt named; None: it named none"
    )
    endpoint: str
    text: str
    thoughts: str = Field("", description="text that the server sent beside the answer")
    finish: FinishReason
    prompt_tokens: int | None = None
    drafted_tokens: int | None = Field(
        None, description="tokens that speculative decoding guessed; None: not reported"
    )
    accepted_tokens: int | None = Field(None, description="guessed tokens that were right")
    completion_tokens: int | None = None
    counted_by: TokenCounter | None = None
    token_ids: tuple[int, ...] | None = None
    token_ends: tuple[int, ...] | None = Field(
        None,
        description="for each generated token the length of the text after it, in code points; a"
        " token inside a code point has the length before it. None = not known",
    )
    letter_logprobs: dict[str, float] | None = Field(
        None,
        description="natural logarithm of the probability that the answer begins with each letter;"
        " `text` is the likeliest one, and one token was asked for. None: the letter was generated",
    )
    sent: Moment
    ttft_ns: int | None = Field(None, description="from sending to the first piece with a token")
    total_ns: int = Field(description="from sending to the end of the answer")
    prompt_eval_ns: int | None = Field(None, description="as the server reports it")
    eval_ns: int | None = Field(None, description="as the server reports it")
    attempts: int = Field(1, description="number of requests, with those that failed")
    check: TruncationSlots | None = Field(
        None,
        description="made to check a truncated answer at a real limit: with one request at a time,"
        " or at the run's concurrency; None: an answer",
    )
    failure: Failure | None = Field(
        None, description="reason for a missing answer; it counts as wrong only by choice"
    )


class GradeRecord(FileRecord):
    """A line of ``grades.jsonl``: one generation, cut at one budget, judged by one grader."""

    question: str
    variant: str
    sample: int = 1
    budget: int | None = Field(description="limit in tokens; None = no limit")
    grader: str
    version: str = Field(description="of the grader; another version may judge otherwise")
    extracted: str | None = Field(description="answer that was found; None: none")
    correct: bool
    complete: bool = Field(description="False if the budget cut the answer")
    truncated_here: bool = Field(
        description="True if labctl cut a longer generation; False: the server's own limit"
    )
    tokens: int | None = Field(None, description="generated tokens within the budget")
    notes: tuple[str, ...] = Field(
        (), description="several-boxes, no-answer, unit-removed, time-limit…"
    )


class AccuracyRecord(Record):
    """Right answers of a variant within a budget, by one grader."""

    variant: str
    budget: int | None = Field(description="limit in tokens; None = no limit")
    grader: str
    correct: int
    graded: int = Field(description="number of answers, over all samples")
    low: float = Field(description="lower end of the interval of the share, 0 to 1")
    high: float


class TruncationRecord(Record):
    """Truncated answers of a model, compared with real limits."""

    model: str
    slots: TruncationSlots
    questions: int
    disagreements: int
    cutting: bool = Field(description="False: answers were not cut from there on")


class EvaluationEnd(RunEnd):
    """``end.json`` of an evaluation."""

    answered: int = Field(description="number of generations with an answer")
    failed: int = Field(description="number of generations without one")
    planned: int = Field(
        description="number of generations, with those for answers that could not be cut"
    )
    questions: int = Field(description="number of questions that every variant has answered")
    accuracies: tuple[AccuracyRecord, ...] = ()
    truncation: tuple[TruncationRecord, ...] = ()
    notes: tuple[str, ...] = Field(
        (), description="reasons for questions left out: the longest time, the stop rule, a refusal"
    )
