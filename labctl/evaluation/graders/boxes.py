r"""Places of an answer: outside of thoughts; in a box, ``\boxed{...}`` or ``\fbox{...}``."""

import re
from dataclasses import dataclass

# A box, also with a doubled backslash (as in JSON); an escaped character; a brace.
_TOKENS = re.compile(r"(?:\\|(?<=\\))(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
# Only spaces, dots and the like: the box of a prompt, "put it into \\boxed{}".
_EMPTY = re.compile(
    r"(?:[\s~{}$.?_\u2026\u00a0]|\\(?:[,;:! $]|(?:q?quad|[lc]?dots|text|mathrm)(?![A-Za-z])))*+"
)
# Between boxes that are members of one list.
_JOINED = re.compile(
    r"[\s$.*]*+(?:[,;&/\u3001\uff0c\uff1b]\s*+(?:and|or)?|and|or|和|或|与|及)[\s$*]*+(?:\\\(\s*+)?"
)
_TAG = r"think|thinking|thoughts?|reasoning|reflection|seed:think"
# The beginnings and ends of thoughts that reasoning models write: DeepSeek and Qwen, Mistral, Kimi,
# Command, gpt-oss.
_THOUGHT = re.compile(
    rf"(?P<begin><(?:{_TAG})>|\[THINK\]|\u25c1think\u25b7|<\|(?:begin_of_thought|START_THINKING)\|>"
    r"|<\|channel\|>\s*+(?:analysis|commentary))"
    rf"|</(?:{_TAG})>|\[/THINK\]|\u25c1/think\u25b7|<\|(?:end_of_thought|END_THINKING)\|>|(?P<turn><\|end\|>)"
    r"|<\|channel\|>\s*+final(?:<\|message\|>)?|assistantfinal",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Boxes:
    """The boxes of a text. ``last``: content of the last complete box, or None.

    An empty box is the last one only if all boxes are empty. ``listed``: ``last`` with the boxes
    before it in the same list, "A and B". ``complete``, ``unclosed``: numbers of boxes.
    """

    last: str | None
    listed: str | None
    complete: int
    unclosed: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a grade."""
        several = ("several-boxes",) if self.complete > 1 else ()
        return several + (("unclosed-box",) if self.unclosed else ())


def without_thoughts(text: str) -> str:
    """Return the text outside of thoughts. A thought without an end lasts to the text's end.

    An end without a beginning ends a thought that began before the text, in the prompt.
    """
    outside: list[str] = []
    at, thinking = 0, False
    for tag in _THOUGHT.finditer(text):
        if tag["begin"]:
            if not thinking:
                outside.append(text[at : tag.start()])
            thinking = True
        elif thinking or not tag["turn"]:
            if not thinking:
                outside.clear()
            at, thinking = tag.end(), False
    if not thinking:
        outside.append(text[at:])
    return "\n".join(outside)


def find_boxes(text: str) -> Boxes:
    """Find the boxes, in linear time. Of nested boxes the inner one is the last."""
    # Where a box and its content begin; None: other braces.
    open_braces: list[tuple[int, int] | None] = []
    full: list[tuple[int, int, int]] = []  # start of the box, start and end of the content
    empty = False
    complete = 0
    for token in _TOKENS.finditer(text):
        found = token[0]
        if found == "}":
            box = open_braces.pop() if open_braces else None
            if box is None:
                continue
            complete += 1
            if _EMPTY.fullmatch(text, box[1], token.start()):
                empty = True
            elif not full or box[1] > full[-1][1]:
                full.append((*box, token.start()))
        elif found[-1] == "{" and found != r"\{":
            open_braces.append(None if found == "{" else (token.start(), token.end()))
    unclosed = sum(box is not None for box in open_braces)
    last = _content(text, full[-1]) if full else "" if empty else None
    return Boxes(last, _listed(text, full) if full else last, complete, unclosed)


def _listed(text: str, boxes: list[tuple[int, int, int]]) -> str:
    first = len(boxes) - 1
    while first and _JOINED.fullmatch(text, boxes[first - 1][2] + 1, boxes[first][0]):
        first -= 1
    return ", ".join(_content(text, box) for box in boxes[first:])


def _content(text: str, box: tuple[int, int, int]) -> str:
    start, begin, end = box
    content = text[begin:end].strip()
    # If the box has a doubled backslash, all backslashes are doubled.
    return content if text[start] == "\\" else content.replace("\\\\", "\\")
