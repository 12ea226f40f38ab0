r"""One spelling for texts with many spellings: digits, minus signs, spaces, LaTeX's formatting.

The grader ``qwen`` reads :func:`plain` texts; the other graders read :func:`bare` texts.
"""

import re
import unicodedata

_SIGNS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00d7\u00b7\u22c5", "*"),
    **dict.fromkeys("\u00f7\u2044\u2215", "/"),
    "\u00b0": "",  # degrees
    "\uffe5": "¥",
    "\ufe69": "$",
}
#: Formatting with an argument: the argument is kept.
_ARGUMENT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|bf|mbox|operatorname|underline)"
    r"\s*\{([^{}]*)\}"
)
#: Colours and the like of a terminal.
_TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Depth to which nested formatting is removed.
_NESTED = 3
_REPLACED = (
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\{,\}|(?<=\d)\\,(?=\d{3}(?!\d))"), ","),
    (
        re.compile(
            r"\\!|\\left(?![a-z])|\\right(?![a-z])|\\displaystyle|\^\s?(?:\{\\circ\}|\\circ)"
        ),
        "",
    ),
    (re.compile(r"\\(?:times|cdot|ast)(?![a-z])"), "*"),
    (re.compile(r"\\div(?![a-z])"), "/"),
    (re.compile(r"\\[,;: ~]|~|\\quad|\\qquad|\\\(|\\\)|\\\[|\\\]"), " "),
    (re.compile(r"\\([$%#&€£])"), r"\1"),
)

#: Colours and the like with their arguments; the coloured text stays.
_COLOUR = re.compile(
    r"\\(?:color|textcolor|colorbox|fcolorbox|pagecolor|[hv]space)(?![A-Za-z])\s*+\*?"
    r"(?:\[[^\[\]{}]*\]\s*+)?\{[^{}]*\}"
)
#: Fonts and sizes. Before an argument that contains braces, :func:`plain` keeps their names.
_FONT = re.compile(
    r"\\(?:text|math)?(?:bf|it|rm|sf|tt|sl|sc|up|md|normal|cal|bb|frak|scr)(?:series|shape|family)?"
    r"(?![A-Za-z])|\\(?:text|mbox|hbox|emph|underline|operatorname|boldsymbol|bm|ensuremath|em"
    r"|boldmath|tiny|scriptsize|footnotesize|small|normalsize|[lL]arge|LARGE|[hH]uge|num|unit|SI|qty"
    r"|(?:text|script|scriptscript)style|(?:no)?limits|centering|strut|mathstrut|bigl?|bigr"
    r"|[bB]iggl?|[bB]iggr|Bigl|Bigr)(?![A-Za-z])"
)
_SUPERSCRIPT = re.compile("[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_SUPERSCRIPTS = str.maketrans(
    "\u207a\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "+-0123456789"
)
_BARE = (
    # LaTeX's spaces between groups of three digits; narrow apostrophes there.
    (re.compile(r"(?<=\d)(?:\\[,;:! ]|\{[, ]\}|~)(?=\d{3}(?!\d))"), ","),
    (re.compile("(?<=\\d)[\u2019\u02bc\uff07`](?=\\d{3}(?!\\d))"), "'"),
)
# 1.2 x 10^3
_CROSS = re.compile(r"(?<=[\d)}]) [xX] (?=[\d({\\.$])|(?<=\d)[xX](?=\d)")


def bare(text: str) -> str:
    r"""Return :func:`plain` without colours, fonts and sizes; superscripts become ``^{3}``.

    Spaces are single. Runs in linear time.
    """
    text = _COLOUR.sub("", text)
    for pattern, replacement in _BARE:
        text = pattern.sub(replacement, text)
    text = _FONT.sub(" ", plain(text))
    text = _SUPERSCRIPT.sub(lambda found: f"^{{{found[0].translate(_SUPERSCRIPTS)}}}", text)
    text = re.sub(r"(?<![}A-Za-z^_])\{ ?\}", "", text)
    return _CROSS.sub("*", re.sub(r"[^\S\n]+", " ", text))


def plain(text: str) -> str:
    """Return the text with ASCII digits, signs and spaces, and without LaTeX's formatting.

    Groups of three digits keep their commas. Runs in linear time.
    """
    if not text.isascii():
        text = _grouped_by_spaces(text)
        text = "".join(map(_plain_character, text))
    text = _TERMINAL.sub("", text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    for _ in range(_NESTED):
        text = _ARGUMENT.sub(r" \1", text)
    return text


def _grouped_by_spaces(text: str) -> str:
    """Return the text with commas for the narrow spaces between groups of three digits."""
    return re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))", ",", text)


def _plain_character(one: str) -> str:
    if one < "\x80":
        plain = one
    elif one in _SIGNS:
        plain = _SIGNS[one]
    elif one.isdecimal():
        plain = str(unicodedata.decimal(one))
    elif one.isspace():
        plain = " "
    elif "\uff01" <= one <= "\uff5e":  # full-width ASCII, as Chinese keyboards write it
        plain = chr(ord(one) - 0xFEE0)
    elif unicodedata.decomposition(one).startswith("<fraction>"):
        plain = " " + unicodedata.normalize("NFKC", one).replace("\u2044", "/")
    else:
        plain = one
    return plain
