r"""What a box may say of a number, generated: spellings, units, names; and what is no value."""

import pytest

from labctl.evaluation.graders import make_grader

#: A value and spellings of it; ~ is a space.
SPELLINGS = {
    "0.25": r".25 1/4 \frac14 \frac{1}{4} \dfrac14 ¼ 25\% 25% \$.25 2^{-2} 2⁻² 2.5e-1 1/4~cup",
    "4000": r"4k 4K 4千 4,000 4{,}000 4\,000 4'000 4’000 4\;000 4~000 4,\!000 \$4k 4×10³ 4e3"
    r" 4\times10^3 4\cdot10^{3} 4*10^3 40百 0.4万 4~thousand 40~hundred 4\text{~thousand} 4~x~10^3",
    "1500000": r"1.5M \$1.5M \$1.5~million 150万 1,500,000 1'500'000 1.500.000 1½~million"
    r" 1\,500\,000 1~500~000 1.5百万 1.5×10⁶ 1~1/2~million 1.5~million~people 15~lakh \$1.5m",
    "62000": r"6万2千 6.2万 6万2000 62千 62k 62,000 62~thousand",
    "60": r"5~dozen 5~dozen~eggs 60.0 ６０ 6×10¹ 60.",
    "7.5": r"7½ 7~1/2 7\frac12 7\frac{1}{2} 7~and~a~half 7~and~1/2 7个半小时 7~and~a~half~hours",
    "1/6": r"\frac16 2/12 0.1\overline{6} \frac{1}{6}",
    "-5": r"−5 –5 -5.0 -\$5 \$-5 -5°C -\frac{10}{2} \frac{-10}{2}",
    "27": r"3^3 3³ 3^{3} 27~cm³ 3³~cm³ 3^3~\text{cm}^3 27\text{~cm}^{3}",
}
UNITS = """
    km|km/h|m/s^2|m~s^{-1}|ms⁻¹|km·h⁻¹|\\text{~m}\\cdot\\text{s}^{-2}|\\,\\text{kg~m}^{-3}|cm^4|cm²|~m2|\\,\\Omega
    ~Ω|~k\\Omega|~\\mu\\text{m}|~℃|°|^\\circ|^{\\circ}\\text{C}|~degrees|\\frac{\\text{km}}{\\text{h}}
    ~\\frac{\\text{kg}}{\\text{m}^{3}}|~J/(kg·K)|~W/m²|~mol·L⁻¹|~N|~L|~apples|\\text{~apples}|~(apples)
    ~\\text{~eggs~per~day}|~eggs~a~day|/day|~each|~in~total|~eggs~left|~errors|~days~before|~km~in~one~hour|~more~eggs|~people|~square~feet|~sq.~ft.
    ~cubic~cm|~meters~squared|~hours|~min|~p.m.|~o'clock|%|\\%|~percent~of~them|~cents|~dollars|~USD|~€|元
    个|~个|名学生|千米|千克|平方米|元/千克|小时|人|度|加仑|~student(s)|~boys~and~girls|~eggs~in~April~and~May|-year-old|~eggs!|~more|\\text{~more}|~manzanas|~рублей|~Äpfel|~кг|個|원
    """
AROUND = r"""
    \bf~N|{\bf~N}|\textbf{N}|\mathbf{N}|\boldsymbol{N}|\large~N|\Huge{N}|\color{red}N|{\color{red}N}|\textcolor{red}{N}
    \textbf{\textcolor{blue}{N}}|\textcolor[HTML]{FF0000}{N}|\colorbox{red}{N}|{N}|(N)|\left(N\right)|\text{N}
    \underline{N}|\displaystyle~N|**N**|N.|N。|x~=~N|f(3)~=~N|S_{10}=N|\angle~ABC=N|\text{Total~cost}~=~\$N|m+n=N
    x=y=N|N=x|the~answer~is~N|Answer:~N|答案是N|答案：N|共N个|小明有N个|She~has~N~eggs|about~N|\approx~N|x\approx~N
    "N"|“N”|``N''|`N`|\{N\}|\left\{N\right\}|x~\in~\{N\}|N\checkmark|N~✓|N\quad\blacksquare|N~eggs~(N)|{\$}N
    平均N个|每人N元|剩余N个|总价N元|小明走了N步|可以买N个|答：她有N个|最大值是N|最后剩下N个
    He~ran~N~miles|She~can~buy~N~eggs|It~takes~her~N~days|Answer:~She~has~N~eggs|N~\left(\text{eggs}\right)|N\newline
    N;~N|N,~N|N~and~N|N或N|N=N|x=N,~y=N|\$N|USD~N|US\$N|€N|N\ldots|\therefore~N
    """
NO_VALUE = r"""
    N~or~more|N~or~fewer~eggs|at~least~N|N~at~most|N~eggs~minimum|N~eggs~and~some|N~eggs~and~counting|N~and~girls|N~girls~and|N~or~so~more|up~to~N|He~sold~within~N|She~sold~under~N|She~divided~by~N|nearly:~N|x~squared~=~N|Twice~x~is~N|up~to~N|over~N|no~more~than~N|N+|N~and~up|N~max
    x>N|x~\ge~N|x~\leqslant~N|\geq~N|<N|N~<~x|x~>=~N|x~\ne~N|x~!=~N|x~\in~[0,N]|0<x<N|N~\pm~1|N±1|\sim~x~N
    not~N|N~is~wrong|N~is~not~it|N~(wrong)|N~impossible|never~N|maybe~N|N?|N~rejected|No,~N|isn't~N|if~x=N|\not~N
    N~or~3|3~or~N|either~N~or~3|3,~N|N;~3|x=3,~y=N|(3,~N)|\{3,N\}|x~\notin~\{N\}|x~\in~\{N,3\}|N~(3~eggs)|3~eggs~(N)|N~(not~3)|f~(N)|3'~N''|between~3~and~N|3~to~N|N~out~of~90|N~of~90
    N~feet~2~inches|3~hours~N~minutes|N~remainder~3|N~R~3|NR3|N余3|N……3|N~mod~5|N~\pmod{5}|N~instead~of~3
    N/|N~*|N~-|N^|\frac{N}{}|N:|N:30|N~minus~x|N~+~x|Nx|N~n|N\pi|Nπ|N\sqrt{2}|N!|2x=N|x+3=N|-x=N|x^2=N|3=N|N=3
    \sqrt{N}x|\log~N|half~of~N|N~squared|N~more~than~Tom|N~less~than~3|nearly~N|N~short|N~too~many|Nth
    \cancel{N}|\boxed{3}~and~N|She~has~at~least~N|She~doesn't~have~N|Nxy|N~xy|N~twenty|N~error|N~before|N₂|N_{8}|x_{N}|\infty~N|N~per|N~of
    至少N|至少需要N元|将近有N人|起码有N人|几乎是N|也许是N|最多是N|N人起步|N元封顶|N人往上|N来个|最多N|不是N|N以上|N个以上|N或3|大于N|不超过N|N不对|N是错的|N多个|N余人|没有N个|N到90|N吗|N左|N几
    mindestens~N|N~oder~mehr|nicht~N|al~menos~N|N~o~más|au~moins~N|не~менее~N|N~или~больше|N未満|N~이상
    """


def cases(text: str) -> list[str]:
    words = [word for line in text.split() for word in line.split("|")]
    return [word.replace("~", " ") for word in words]


def right(name: str, text: str, answer: str) -> bool:
    return make_grader(name).grade(text, answer, complete=True).correct


@pytest.mark.parametrize("value", SPELLINGS)
def test_all_spellings_of_a_number_are_that_number_and_no_other(value: str) -> None:
    for spelled in cases(SPELLINGS[value]):
        assert right("boxed", rf"So \boxed{{{spelled}}}.", value), spelled
        assert right("numeric", f"So {spelled}", value), spelled
        for other in SPELLINGS:
            assert not right("boxed", rf"So \boxed{{{spelled}}}.", other) or other == value, spelled
        begin = spelled.lstrip("\\$-−–")[:1]
        if begin.isdecimal() and begin != value:
            assert not right("boxed", rf"\boxed{{{spelled}}}", begin), spelled
            assert not right("numeric", spelled, begin), spelled


@pytest.mark.parametrize("number", ["18", "2.5", r"\frac{3}{4}", "1,234", "6×10²"])
def test_a_unit_changes_nothing(number: str) -> None:
    for unit in cases(UNITS):
        assert right("boxed", rf"\boxed{{{number}{unit}}}", number), (number, unit)
        assert right("numeric", f"She has {number}{unit}", number), (number, unit)
        assert not right("boxed", rf"\boxed{{{number}{unit}}}", "7"), (number, unit)


@pytest.mark.parametrize("number", ["18", "0.5", "1,234"])
def test_names_and_decoration_change_nothing(number: str) -> None:
    for around in cases(AROUND):
        text = rf"\boxed{{{around.replace('N', number)}}}"
        assert right("boxed", text, number), text


@pytest.mark.parametrize("number", ["18", "0.5", "1,234", "90"])
def test_more_than_a_quantity_is_no_value(number: str) -> None:
    for said in cases(NO_VALUE):
        text = rf"\boxed{{{said.replace('N', number)}}}"
        assert not right("boxed", text, number), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9*2 = 18", "18"),
        (r"20 - 2 = 18 \text{ eggs}", "18"),
        (r"5 \text{ eggs} + 13 \text{ eggs} = 18 \text{ eggs}", "18"),
        ("x = 9 * 2 = 18", "18"),
        ("9 times 2", "18"),
        ("eighteen", "18"),
        ("Two thousand three hundred and five eggs", "2305"),
        ("two and a half hours", "2.5"),
        ("two thirds", "2/3"),
        ("eighteen (18)", "18"),
        ("18 eggs (eighteen)", "18"),
        ("1.5 hours (3/2 hours)", "3/2"),
        ("4分之3", "0.75"),
        ("百分之50", "0.5"),
        ("5''", "5"),
        ("5'", "5"),
    ],
)
def test_consistent_arithmetic_and_words_are_values(text: str, value: str) -> None:
    assert right("boxed", rf"\boxed{{{text}}}", value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9*3 = 18", "18"),
        ("18 = 9*3", "18"),
        ("18.000001", "18"),
        ("1/3", "0.333333"),
        ("10,00", "1000"),
        ("0,123", "123"),
        ("1.2.3", "1.2"),
        ("1'234", "234"),
        ("1.234.567", "1.234"),
        ("1 8", "18"),
        ("3万5", "35000"),  # or 30005
        ("three quarters", "3"),
        ("18", "18 or more"),
    ],
)
def test_inconsistent_and_unclear_numbers_are_not(text: str, value: str) -> None:
    assert not right("boxed", rf"\boxed{{{text}}}", value)
