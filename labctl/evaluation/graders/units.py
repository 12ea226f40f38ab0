"""Units after a number, and names before it.

Nouns cannot be listed. The lists contain words and signs that turn a quantity into something else:
bounds, denials, alternatives, comparisons, verbs.
"""

import re

from labctl.evaluation.graders.number_words import NUMBER_WORDS

#: Words that deny, doubt, set conditions or offer another value: neither in a unit nor in a name.
_DENYING = frozenset(
    """not no non never neither nor none cannot without except excluding but rather instead unless
    if when whenever or either false wrong untrue maybe perhaps possibly than then else
    however although isn aren wasn weren don doesn didn won hasn haven hadn couldn wouldn
    shouldn though because since depends depending nicht kein keine oder falsch wenn als ou
    pas faux si sinon falso incorrecto или не неверно если""".split()  # noqa: SIM905
)
#: Words that bound, compare or continue, and words of sentences: not in a unit.
_NO_UNIT = frozenset(
    """and to through until till from between versus vs least most minimum maximum max more less
    fewer greater larger bigger smaller higher lower over under above below beyond up upward
    upwards onward onwards down plus minus divided multiplied mod modulo remainder rem short
    shy tops half quarter third fourth fifth sixth seventh eighth ninth tenth hundredth
    thousandth dozenth is are was were be been being equals equal do does did has have had can
    could should would will shall may might must i you we he she it they who which that this
    these those what where while as like such so also too hardly barely almost nearly squared
    cubed factorial choose pi infinity inf undefined unknown exceed exceeds exceeding limit
    limits bound bounds lowest highest smallest largest fails seems looks appears sounds gives
    makes leaves und mehr weniger mindestens wenigstens maximal minimal bis ab über unter rest
    et plus moins mínimo máximo más menos mas hasta desde resto y e и больше меньше более
    менее до от максимум минимум остаток""".split()  # noqa: SIM905
)
_DENYING_STEMS = re.compile(
    r"(?:incorrect|invalid|impossib|improb|unlikel|doubt|reject|exclud|eliminat|discard|dismiss"
    r"|disprov|refut|mistaken|erron|contradict|extraneous|inaccura|inexact|unsure|uncertain|ambigu"
    r"|inconsist|insuffic|inadmiss|unaccept|unsuit|unsolv|assum|suppos|provided)"
)
#: Words of _NO_UNIT that may stand before a number: "she will have 18".
_SENTENCE = frozenset("i we you he she it they is are was were has have had can will would".split())  # noqa: SIM905
#: Words that are not in a unit and not in a name: "nearly: 18", "x squared = 18".
_NO_NAME = frozenset("least nearly almost hardly barely twice squared cubed".split())  # noqa: SIM905
#: Words that need another word after them.
_DANGLING = frozenset(
    """per of for a an the at on by with square cubic sq cu pro par por de""".split()  # noqa: SIM905
)
#: Words that cannot begin a unit, but may end it: not "18 before", but "18 days before".
_NO_BEGIN = frozenset(
    """out before after into onto during around against error mistake guess typo nope""".split()  # noqa: SIM905
)
#: Usual symbols of one letter.
_SYMBOLS = frozenset("mgslLhJWVANCFKTdtΩμ℃℉¢")
#: Units of two letters; other two letters are a product: 3xy.
_PAIRS = frozenset(
    """am pm AM PM of in an at on by km cm mm nm dm um pm μm kg mg ug μg dg cg ml mL dl dL cl cL
    kl kL hl ha ft yd mi oz lb pt qt hr hs mo wk yr ms ns us μs ps Hz Pa kN mN kJ MJ kV mV kW
    mW MW GW eV mA μA kΩ MΩ Wh Ah GB MB KB kB TB Gb Mb kb cc sq cu AU ly dB cd lm lx Bq Gy Sv
    rs Rs RM kr ct Nm Ns Hg mi pc pp fl tb el de al St""".split()  # noqa: SIM905
)
#: Symbols of three letters that may directly follow a number, like words of four letters.
_TRIPLES = frozenset(
    """min sec hrs lbs gal mol kWh Wh mAh mph kph kmh rpm kPa MPa GPa kHz MHz GHz bps fps psi atm
    bar cal ppm ppb cup usd eur gbp cny rmb sqm sqf kcal yrs""".split()  # noqa: SIM905
)
_HAN = re.compile(
    r"不|没|沒|未|错|錯|误|誤|否|或|若|如果|可能|吗|嗎|呢|吧|以[上下内內外前后]|之[上下内內间間外]"
    r"|超|[高低大小多少]于|(?<!其)是|为|為|起$|和$|[与與及至到]$|^[多余餘几幾至到除减乘十万亿]|[多余餘几幾]$"
    r"|至[少多]|起[码步]|将近|接近|几乎|也许|概率|封顶|打底|开外|[往朝以][上下]|^来"
    r"|加(?!仑)|比(?!特)|非(?!洲)|假(?!期)|半|最(?![大小](?:值|公)|[终后])|更|左$|右$(?<!左右)"
    r"|ない|未満|より|または|以下|이상|이하|미만|초과|또는|아니"
)
# The dots and the apostrophe of p.m. and o'clock.
_CLOCK = re.compile(r"(?<=\b[aApP])\.(?=[mM])|(?<=\bo)'(?=clock)")
_EXPONENT = re.compile(r"(?<=[^\W\d_)}]) ?\^ ?[+-]?\d{1,2}")
# m2, cm3
_DIGIT_EXPONENT = re.compile(r"(?<![^\W\d_])((?:[kcdm]?m|ft|in|yd|s))[23](?![\w^])")
_LETTERS = r"(?:[^\W\d_]|[℃℉¢])"
_TERM = rf"\(?{_LETTERS}+(?:['\u2019]{_LETTERS}+)*\)?"
_UNIT = re.compile(rf" ?/? ?{_TERM}(?:[ */.-]{{1,4}}{_TERM})*[.!]?")
_WORDS = re.compile(rf"{_LETTERS}+")
# student(s)
_PLURAL = re.compile(r"(?<=[a-z])\(e?s\)")
#: Words after "and" that leave the number open: "18 eggs and some".
_OPEN_END = frozenset("a some several few counting change growing rising".split())  # noqa: SIM905
_MOST_WORDS = 8
_GREEK = "\u0370", "\u03ff"

_NAME_COMMAND = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho"
    r"|sigma|tau|upsilon|phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega"
    r"|angle|triangle|overline|widehat|hat|bar|vec|tilde|ell|det|dim|gcd|lcm|max|min|sin|cos|tan|log"
    r"|ln|lim|frac|cap|cup|prime|therefore)(?![A-Za-z])"
)
# x_1, f(3), A'
_INDEX = re.compile(r"(?<=[A-Za-z}])(?:_ ?\{? ?\w{1,9} ?\}?|\( ?[\d.,/ -]{1,9} ?\)|'(?![A-Za-z]))")
_NAME = re.compile(rf"[({{]?{_LETTERS}(?:{_LETTERS}|[ ()'{{}}.+*/-])*")


def is_unit(text: str) -> bool:
    """Return True if the text after a number is a unit: a noun, or a usual symbol."""
    first = text[:1]
    text = _CLOCK.sub("", _PLURAL.sub("", text.replace("{", "").replace("}", "")))
    text = _DIGIT_EXPONENT.sub(r"\1", _EXPONENT.sub("", text))
    text = text.replace("( ", "(").replace(" )", ")")
    if text.count("(") != text.count(")") or not _UNIT.fullmatch(text.rstrip()):
        return False
    words = _WORDS.findall(text)
    if len(words) > _MOST_WORDS or words[-1].lower() in _DANGLING or any(map(str.isdigit, text)):
        return False
    if first not in " /(" and words[0].isascii() and not _stands_directly(words[0]):
        return False
    if words[0].lower() in _NO_BEGIN:
        return False
    if words[0].lower() in ("more", "fewer", "less"):
        del words[0]  # "18 more eggs" are 18 eggs
    for at in range(len(words) - 2, 0, -1):
        if words[at] == "and" and words[at + 1].lower() not in _OPEN_END:
            del words[at]  # "18 boys and girls"
    return all(_may_be_unit(word, words) for word in words)


def _stands_directly(word: str) -> bool:
    """Return True if a word may follow a number without a space: 18km, but not 18xy."""
    if len(word) <= 2:
        return word in _PAIRS or word in _SYMBOLS
    return len(word) > 3 or word in _TRIPLES


def _may_be_unit(word: str, words: list[str]) -> bool:
    small = word.lower()
    if (
        _denies(small)
        or (small in _NO_UNIT and word != "May")
        or _HAN.search(word)
        or (NUMBER_WORDS.fullmatch(small) and (small != "one" or word is words[0]))
    ):
        return small in ("squared", "cubed") and word is not words[0]
    if len(word) == 1:
        return word in _SYMBOLS or (small == "a" and word is not words[-1]) or _is_syllable(word)
    return len(word) > 2 or not word.isascii() or word in _PAIRS


def _denies(word: str) -> bool:
    return word in _DENYING or _DENYING_STEMS.match(word) is not None


def _is_syllable(letter: str) -> bool:
    """Return True if a letter is a word in its script: 个; not x or π."""
    return "\u0400" <= letter < "\U0001d400"


def is_clause(text: str) -> bool:
    """Return True if a text before a number is a subject with a verb, without a bound."""
    words = [word.lower() for word in _WORDS.findall(text)]
    return words[-1] not in _DANGLING | _NO_BEGIN | {"within", "past"} and not any(
        _denies(word) or word in _NO_NAME or (word in _NO_UNIT and word not in _SENTENCE)
        for word in words
    )


def is_name(text: str) -> bool:
    """Return True if a text names a quantity: ``x``, ``f(3)``, ``Total cost``."""
    text = _INDEX.sub("", _NAME_COMMAND.sub(" a", text)).strip()
    if not _NAME.fullmatch(text) or _HAN.search(text):
        return False
    words = [word.lower() for word in _WORDS.findall(text)]
    return not any(_denies(word) or word in _NO_NAME for word in words)
