"""The grader ``choice``: the letter of a multiple-choice question."""

import re

from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import find_boxes, without_thoughts
from labctl.evaluation.graders.plain import bare

#: Marks around a letter: Markdown, LaTeX, JSON, quotation marks.
_MARKS = re.compile(
    r"[*_`\"$<>{}\u2018\u201c\u201d\u300c-\u300f\u300a\u300b\u3010\u3011]|(?<![A-Za-z])'(?=[A-Za-z]')|(?<=[^A-Za-z][A-Za-z])'(?![A-Za-z])"
)
# A letter alone: not the pronoun of "I think" or the article of "A town", and not a part of
# "X-rays", "U.S.", "C#", "f(x)" or "A^2".
_ARTICLE = r"(?! (?!because|since|and|or|as|is|are|but|for|due|which|nor|y|o|und|oder)[a-z])"
_ALONE = r"(?![A-Za-z\d]|-[a-z]|\.[A-Z]\.[^A-Z]|['^#\\]|\((?![A-J]?[\u4e00-\u9fff])| ?[=+^])"
_LETTER = rf"(?:[B-HJ-Z]|A{_ARTICLE}|I{_ARTICLE}){_ALONE}"
_SMALL = r"(?:[(\[] ?[a-z] ?[)\]]|[a-z](?=\)|\. | because| since|[.,;:!\u3002]? ?(?:$|\n)))"
_OPEN, _CLOSE = r"[(\[ ]{0,3}", r"[)\] ]{0,3}"
_AND = (
    r"(?:(?:,|;|/|&|\+|\u3001|\.(?! ))[ ]?(?:and |or |nor )?|\b(?:and|or|nor|y|o|und|oder) "
    r"|[和或与及跟])"
)
_ANOTHER = (
    rf"{_AND} ?(?:possibly |maybe |perhaps |even |also )?(?:option |choice |选项)?{_OPEN}{_LETTER}"
)
# A letter with a verb begins another clause: "B, A is wrong", "B, A and C are wrong", "B,A和C都对".
_VERB = r"(?: ?(?:,|and|or|nor) ?[A-J]){0,5} (?:is|are|was|were|can|cannot|has|does)\b"
_CLAUSE = (
    r", ?(?:选项)?[A-J](?: ?[,、和与或] ?[A-J]){0,5}(?:选?项)?(?:都|均|也|是|不|错|对|正确|符合)"
)
_SECOND = (
    rf"(?P<second>(?!{_CLAUSE}){_CLOSE}[( ]{{0,2}}{_ANOTHER}(?!{_VERB})|[A-J]{{1,9}}(?![A-Za-z]))?"
)
# "ABD" is several letters.
_FIRST = rf"(?P<letter>{_LETTER}|[A-J](?=[A-J]{{1,9}}(?![A-Za-z])))"
_STATED = rf"{_OPEN}(?:{_FIRST}{_SECOND}|(?P<small>{_SMALL}))"
_NOUN = (
    r"(?i:(?:answer|choice|option|statement)s?|ans\.?|respuesta|opci[oó]n|antwort|r[eé]ponse|ответ)"
)
_IS = (
    r"(?i:(?: (?:is|are|would be|should be|must be|has to be|seems to be|appears to be|will be|was"
    r"|es|ist|est))+(?![a-z]) ?:?|'? ?[:=]| -| ?[\u2192\u21d2]|\])"
)
_HEDGE = (
    r"(?i:(?:definitely|clearly|therefore|thus|indeed|simply|probably|likely|most|both|either|the"
    r"|letter|correct|right|la|option|choice|answer|opci[oó]n|\(?i think\)?)[ :,]{1,3}){0,6}"
)
# Only the end of the clause after a letter.
_END = r"[)\] ]{0,3}(?:,(?! ?(?:and |or )?[A-J]\b)|[.;!\u3002]|$|\n)"
# Before a correction: "No, B."
_NO = r"(?<![A-Za-z])(?i:no|wait|actually|sorry|correction)"
# "the answer is (B)", "Answer: B", "A: B", "B is correct", "it must be B", "I choose B", "not A but
# B", "No, B.", 答案是B, 选B, B是正确答案. A question or a denial states nothing.
_PHRASE = re.compile(
    rf"(?:{_NOUN}(?: (?i:correct|correcta|letter|choice|option))?{_IS} ?{_HEDGE}|(?:^|\n)A: ?"
    r"|(?:答案|正确的|答えは|正解は)(?:选项)?(?:应该|应当|应)?(?:是|为|选)?[ :(]{0,3}(?:选项)?"
    r"|(?<!不)(?:(?:应该|应当|而)是|应为)[ :(]{0,3}(?:选项)?"
    r"|(?<![不勿非别没])(?<!不[能该应可会要])(?<!不[应要]该)"
    r"(?:选项|选择|选)(?:是|为|了)?[ :]{0,3}(?!\w{0,20}[不错])"
    rf"|\b(?i:must|should|has to) be ?:? ?(?i:option |choice )?(?={_OPEN}[A-J]{_CLOSE}"
    r"(?:[.,;:!(\u3002]|$|\n|because|since))"
    r"|\b[Ii](?: will| would|'d|'ll)? (?:choose|pick|select|go (?:with|for)) (?:the )?(?:option )?"
    rf"|\b(?i:not) (?:option )?{_OPEN}{_LETTER}{_CLOSE},? ?but (?:rather )?"
    rf"|(?:{_NO} ?[,:]|(?<![A-Za-z])(?i:i (?:mean|meant))) ?(?:(?:it'?s|it is|option) )?"
    rf"(?={_OPEN}[A-J]{_END}))"
    rf"{_STATED}(?! ?\?|{_CLOSE}(?:是|为)?[不错])"
)
# "The answer is B. That is wrong.", "The answer is (B) Paris. Wait, that is wrong."
_DOUBT = r"(?:(?i:but|hmm+|oh|wait|no|sorry|actually)[ .,;!\n\u2026\u2014]{1,5})"
_TAKEN_BACK = re.compile(
    rf"(?:[)\] .,;!\n\u2026\u3002\u2014-]{{0,9}}{_DOUBT}{{0,4}}"
    rf"|[^.!?\n]{{0,80}}[.!?\n\u2026]{{1,5}} ?{_DOUBT}{{1,4}})"
    r"(?:(?i:(?:that|this|it)(?:'s| is| was) (?:wrong|incorrect|a mistake|not (?:right|correct))"
    r"|(?:that|this|it) (?:isn't|wasn't) (?:right|correct)|i was wrong)"
    r"|(?:这|这是)?(?:不对(?!称)|错了|错的|不正确))(?! (?:to|for)\b)"
)
_VERDICT = re.compile(
    rf"(?<![A-Za-z])(?P<first>{_LETTER}{_CLOSE}{_AND} ?{_OPEN})?(?P<letter>[A-Z])"
    rf"{_CLOSE}(?:选项|项)?(?: (?i:is|are|was|must be) (?:the )?(?i:correct|right|best|true|answer)"
    r"(?![a-z])| is the only | is(?=\.(?: |\n|$))"
    r"|(?:是|为|才是|就是)?(?:正确|对的|对(?![A-Za-z])|答案|符合题意|符合要求)|才是(?=[\u3002.,]|$))"
)
# "option B": weaker, since a text also names options that it does not choose.
_NAMED = re.compile(
    rf"(?<!not )(?<!n't )(?<!never )(?:{_NOUN}"
    r"|(?i:choose|select|pick|go (?:with|for)|it(?: is|'s| would be| will be))) ?(?:the )?"
    rf"{_STATED}"
    rf"(?!{_CLOSE}(?:is|are|was|isn't|cannot)\b| ?\?)"
    # "So B.", "Correct: B"
    r"|(?:(?<![A-Za-z])(?i:thus|so|hence|therefore)|所以|因此|综上(?:所述)?|(?<![A-Za-z])(?i:correct|final"
    r"|conclusion|solution|result) ?:)[ ,:]{0,3}(?:是|为)?"
    rf"{_OPEN}(?P<letter2>{_LETTER}){_END}"
)
_BEGIN = re.compile(
    rf"{_OPEN}(?P<letter>{_LETTER}){_SECOND}{_CLOSE}"
    r"(?:[)\].:,\u3001\u3002]|\n|$| - (?=[A-Za-z]{2}))"
)
# "(d) oxygen" as the whole text.
_BEGIN_SMALL = re.compile(
    r"(?P<letter>)(?P<small>[(\[]?[a-h][)\]]) (?!.*\b(?:is|are|not|no)\b)[^\n()]{1,60}$"
)
# A line of a list of all options.
_LISTED = re.compile(r"^[ (\[-]{0,4}([A-J]|[a-j](?=\)))(?:[.)\]:]| -).*$", re.MULTILINE)
_OWN_LINE = re.compile(
    rf"^[=\u2192\u21d2\u2234# ]{{0,5}}{_OPEN}(?P<letter>{_LETTER}){_SECOND}[ .)\]]{{0,4}}$",
    re.MULTILINE,
)
# The end of a sentence: "My guess is B."
_SENTENCE = re.compile(
    rf" (?:is|means|leaves)(?: us with)?(?: only)? (?:option )?{_OPEN}(?P<letter>{_LETTER}){_END}"
)
_IN_BRACKETS = re.compile(rf"(?<!not )\( ?(?P<letter>{_LETTER}){_SECOND} ?\)")
_BOXED = re.compile(
    rf"{_OPEN}(?:{_FIRST}{_SECOND}{_CLOSE}(?:选?项)?(?:[).:,\u3001\u3002 ]|$)"
    r"(?! ?(?:(?:is|are|was) (?:wrong|incorrect|false|not)\b|是?[不错]))"
    rf"|(?P<small>{_SMALL}))"
)
#: Several letters count as no letter.
_SEVERAL = ""


class Choice(Grader):
    """Takes the letter in the last box, or else at the usual places outside of thoughts.

    If the box has no letter: after the last "answer is" or the like, unless the next words take it
    back ("wait, that is wrong"). If there is no box, also: after the last "option", "choice" or
    "so"; at the beginning of the text (``B.``, ``(B) Paris``); alone on the last such line; in the
    last brackets; at the end of a sentence. Several letters ("A or C") count as no letter.
    """

    name = "choice"
    version = "3"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        text = without_thoughts(text)
        boxes = find_boxes(text)
        letter = None if boxes.listed is None else _boxed(boxes.listed)
        if letter is None:
            letter = _in_text(text, boxed=bool(boxes.last))
        if not letter:
            return Grade(boxes.listed, correct=False, notes=("no-answer", *boxes.notes))
        return Grade(letter, letter == answer.strip().upper(), boxes.notes)


def _unmarked(text: str) -> str:
    return re.sub(" +", " ", _MARKS.sub("", bare(text)))


def _letter(match: re.Match[str]) -> str:
    """Return the letter that a match states, in upper case; None if there are several."""
    groups = match.groupdict()
    if groups.get("second") or groups.get("first"):
        return _SEVERAL
    letter: str = match["letter"] or groups.get("letter2") or groups["small"].strip("()[] ")
    return letter.upper()


def _boxed(content: str) -> str | None:
    """Return the letter of a box; ``_SEVERAL``; None: it has no letter."""
    text = _unmarked(content).strip(" .\t\n")
    found = _BOXED.match(text) or _last(_PHRASE, text) or _last(_NAMED, text)
    if found is None and (several := re.search(rf"(?<![A-Za-z]){_LETTER}{_SECOND}$", text)):
        return _SEVERAL if several["second"] else None
    return None if found is None else _letter(found)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007
        pass
    return last


def _in_text(text: str, *, boxed: bool) -> str | None:
    text = _unmarked(text)
    phrase, verdict = _last(_PHRASE, text), _last(_VERDICT, text)
    if phrase and verdict and verdict["first"]:
        verdict = None  # "The answer is D, since A and B are right."
    if statements := [one for one in (phrase, verdict) if one]:
        last = max(statements, key=re.Match.end)
        return _SEVERAL if _TAKEN_BACK.match(text, last.end()) else _letter(last)
    if boxed:
        return None
    if named := _last(_NAMED, text):
        return _letter(named)
    if len(set(_LISTED.findall(text))) > 1:
        text = _LISTED.sub("\n", text)
    text = text.strip()
    found = _BEGIN.match(text) or re.fullmatch(rf"(?P<letter>)(?P<small>{_SMALL})[.)]?", text)
    found = found or _BEGIN_SMALL.match(text) or _last(_OWN_LINE, text)
    found = found or _last(_IN_BRACKETS, text) or _last(_SENTENCE, text)
    return None if found is None else _letter(found)
