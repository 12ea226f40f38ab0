"""The grader ``numeric`` and the numbers that it reads."""

import pytest

from labctl.evaluation.graders import make_grader


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("She has 3 left and sells them. The answer is 1,234.50 dollars.", "1234.5"),
        ("He owes -$5", "-5"),
        ("He owes $-5.", "-5"),
        ("He owes \\$5.", "5"),
        ("That is 1.5e3", "1500"),
        (r"That is $1.5 \times 10^{3}$", "1500"),
        ("2^{10}", "1024"),
        (r"\frac{3}{4}", "0.75"),
        (r"\dfrac34", "3/4"),
        (r"2\frac{1}{2} hours", "2.5"),
        ("2 1/2 cups", "2.5"),
        ("3½", "3.5"),
        ("½", "0.5"),
        ("50%", "50"),
        (r"50\%", "0.5"),
        ("50 percent", "50"),
        (r"1\,234", "1234"),
        ("1{,}234,567 km", "1234567"),
        ("of 1,234, 18", "18"),
        ("1\u202f234", "1234"),
        ("12 cm^2", "12"),
        ("12 m²", "12"),
        ("20-5", "5"),
        ("20 - 5", "5"),
        ("it is \u22125 degrees", "-5"),
        ("\uff11\uff12\uff0c\uff13\uff14\uff15", "12345"),
        ("\u0661\u0668", "18"),
        ("一共有18个苹果。", "18"),
        ("so...18", "18"),
        ("100,000,000.", "100000000"),
        (r"\text{18 eggs}", "18"),
        ("**18**", "18"),
        ("\x1b[1m18\x1b[0m", "18"),
        ("18\x00", "18"),
        ("18.00", "18"),
        ("18 m s^{-1}", "18"),
        (r"18\,\mathrm{m}\cdot\mathrm{s}^{-2}", "18"),
        ("18 km·h⁻¹", "18"),
        ("18 g of CO2, not H₂O", "18"),
        ("18 of x_{2}", "18"),
        ("1'234 Franken", "1234"),
        ("1.234.567 Euro", "1234567"),
        ("10 000 people", "10000"),
        ("3 thousand", "3000"),
        ("$2.5m", "2500000"),
        ("3×10⁴", "30000"),
        ("<think>7</think> 18", "18"),
        ("7 </think> 18", "18"),
        ("18 <think> 7", "18"),
        (r"$x = - 18$", "-18"),
    ],
)
def test_a_number_is_read_as_a_person_reads_it(text: str, answer: str) -> None:
    grade = make_grader("numeric").grade(text, answer, complete=True)

    assert grade.correct, grade


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("18", "19"),
        ("1234567", "1234568"),  # integers are equal or not, whatever the tolerance
        ("50%", "5"),
        ("0.5", "50"),
        ("0.3333333", "1/3"),
        ("-18", "18"),
        ("1/0", "0"),
        ("9" * 5000, "9"),
        ("9^{999}", "9"),
        ("1e9999", "1"),
        ("eighteen", "18"),
        ("10,00", "0"),  # cut off, or a decimal comma
        ("10,00", "10"),
        ("1,2,3", "3"),
        ("1'234", "234"),
        ("1.234.567", "1.234"),
        ("1.234,56", "56"),
        ("3 thousand", "3"),
        ("3³", "3"),
        ("3⁴", "34"),
        ("<think>18", "18"),
        ("", "0"),
    ],
)
def test_another_number_is_wrong(text: str, answer: str) -> None:
    assert not make_grader("numeric").grade(text, answer, complete=True).correct


def test_no_number_is_no_answer() -> None:
    grade = make_grader("numeric").grade("I cannot tell.", "18", complete=True)

    assert (grade.extracted, grade.notes) == (None, ("no-answer",))


@pytest.mark.parametrize("text", ["10,00", "1.234,56", "0,123", "1.2.3", "3万5"])
def test_an_unclear_number_is_noted(text: str) -> None:
    assert make_grader("numeric").grade(text, "3", complete=True).notes == ("unclear-number",)
