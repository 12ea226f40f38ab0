"""The grader ``choice``: the letter of a multiple-choice question."""

import pytest

from labctl.evaluation.graders import make_grader


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{B}",
        r"\boxed{\text{(B)}}",
        r"\boxed{b}",
        r"\boxed{\textbf{B. } Paris}",
        r"A is wrong. \boxed{A} no: \boxed{B}",
        "The answer is B.",
        "The answer is (B) Paris.",
        "Answer: **B**",
        "the correct option is B",
        "The answer is A? No. The answer is B.",
        "答案是B。",
        "答案\uff1aB",
        "故选B",
        "B",
        "B.",
        "(B)",
        "B) Paris",
        "**B**. Paris",
        "Let me think about it.\nB\n",
        "I go for (B), since (A) is no city. So (B)",
        "\uff22",
        "The answer is B, not option A.",
        "The answer is B, because option A is no city.",
        "Option A is wrong. So option B.",
        "I choose option B, not option A.",
        "The answer is (I think) B. So the answer is B.",
        "The option I would take is B. The answer is B",
    ],
)
def test_the_letter_is_found(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert grade.correct, grade


@pytest.mark.parametrize("letter", "AHIJXZ")
@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{LETTER}",
        r"\boxed{letter}",
        "The answer is LETTER.",
        "The answer is LETTER because of the rain.",
        "(LETTER) Paris",
        "So it must be:\nLETTER",
        "答案是LETTER。",
    ],
)
def test_all_letters_of_a_data_set_are_known(text: str, letter: str) -> None:
    text = text.replace("LETTER", letter).replace("letter", letter.lower())

    assert make_grader("choice").grade(text, letter, complete=True).correct


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A long story of a town.",
        "I think it is Berlin.",
        "Be careful.",
        "The answer is a town.",
        "The answer is I think Paris.",
        "The answer is U.S. Steel.",
        "The answer is X-rays.",
        "I am not sure.",
        "The answer is I'm not sure.",
    ],
)
def test_without_a_letter_there_is_no_answer(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert (grade.extracted, grade.correct, grade.notes) == (None, False, ("no-answer",))


def test_another_letter_is_wrong() -> None:
    assert not make_grader("choice").grade("The answer is C", "B", complete=True).correct
    assert not make_grader("choice").grade(r"\boxed{Paris}", "B", complete=True).correct


@pytest.mark.parametrize(
    "marked", ["$L$", "`L`", '"L"', "'L'", "{L}", "<L>", "[L]", "_L_", "**L**"]
)
@pytest.mark.parametrize("letter", "ABD")
def test_marks_around_a_letter_are_no_content(marked: str, letter: str) -> None:
    marked = marked.replace("L", letter)
    for text in (f"Answer: {marked}", f"So {{}} the answer is {marked}.", rf"\boxed{{{marked}}}"):
        assert make_grader("choice").grade(text, letter, complete=True).correct, text


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{B \text{ Paris}}",
        r"\boxed{(b)}",
        r"\boxed{b. Paris}",
        r"\boxed{\textbf{(B)}\ 12}",
        r"\boxed{\text{Option B}}",
        r"\boxed{\color{red}B}",
        r"\boxed{B}. I put it in \boxed{}.",
        r"The total is \boxed{42}. Answer: B",
        r"Answer: B. So it is \boxed{42}",
        r"\boxed{\langle A \rangle} is low. **Answer: B**",
        "<think>Answer: A</think> Answer: B",
        "The correct answer is b.",
        "The best answer is (b).",
        "The answer would be B",
        "It must be B: option B is correct.",
        "(B) is the correct choice, A is not.",
        "Answer: B. A is wrong.",
        "The answer is B, A and C are wrong.",
        "A: It thinks a ring is round. The answer is (B).",
        "A. Wood\nB. Tin\nC. Air\n\nTin conducts.\n\nB",
        "La respuesta correcta es la opción B.",
        "答案选项为：B",
        "只有选项B是对的",
        "所以B是正确答案",
        "本题应选B",
        "不选A，选B",
        # A correction.
        "The answer is A. Hmm, no, that's wrong. It should be B.",
        "The answer is A. No, B.",
        "The answer is A. Actually, B.",
        "The answer is A. Sorry, I meant B.",
        "The correct option is not A but B.",
        "答案是A。不对，应该是B。",
        "答案不是A，而是B。",
        "A不对，应为B。",
        "没选A，选了B",
        # No correction.
        "The answer is B. Actually, A is a metal.",
        "The answer is B. No, A is not right.",
        "The answer is B. If it rained, it would be A.",
        "The answer is B. It is wrong to choose A.",
        "The answer is B, because A says that ice sinks. That is wrong.",
        # A conclusion, or the end of a sentence.
        "It can't be A. Must be B.",
        "A is less likely than B, so B.",
        "Therefore, B.",
        "因此，B。",
        "My guess is B.",
        "Incorrect: A\nCorrect: B",
        "A is out, and this leaves B.",
        "A is not the right answer; B is.",
        "Of all of them, B is the only one that fits.",
        "It is A or C, but I pick B.",
        "A项不符合题意；B项符合题意",
        "Answer → B",
        "=> B",
        # Another clause, or a remark, names more letters.
        "The answer is B, since A and C are both correct.",
        "The answer is B. Both A and C are correct.",
        "答案是B，A和C都对",
        "答案：B（A和C都正确）",
        "The answer is b because of the rain.",
        "b)",
        "(b) oxygen",
        "B - oxygen",
        r"\boxed{\text{B项}}",
    ],
)
def test_what_is_stated_is_found(text: str) -> None:
    grade = make_grader("choice").grade(text, "B", complete=True)

    assert grade.correct, grade


@pytest.mark.parametrize(
    "several",
    [
        "A, B",
        "A and B",
        "A or B",
        "A/B",
        "A & B",
        "(A) and (B)",
        "A.B",
        "AB",
        "A、B",
        "A和B",
        "A或B",
        "A (or B)",
        "A, or maybe B",
    ],
)
@pytest.mark.parametrize(
    "text",
    [r"\boxed{L}", r"\boxed{\text{Both L}}", "Answer: L", "The answers are L.", "L", "答案：L"],
)
def test_several_letters_are_no_letter(text: str, several: str) -> None:
    for letter in "AB":
        grade = make_grader("choice").grade(text.replace("L", several), letter, complete=True)
        assert not grade.correct, grade


@pytest.mark.parametrize(
    "text",
    [
        "The answer is not B.",
        "Option B is wrong.",
        "选项B是错误的",
        "答案不是B",
        "Is the answer B?",
        "Neither A nor B is correct.",
        "A. Wood\nB. Tin\n\nWhich of them conducts",
        "<think>Answer: B",
        r"\boxed{B^2}",
        r"\boxed{B = 3}",
        r"\boxed{A} and \boxed{B}",
        r"\boxed{\text{B is wrong}}",
        "The answer is B. Wait, that's not right.",
        "The answer is B. Hmm, no, this is wrong",
        "The answer is (B) Paris.\n\nWait, that is not correct.",
        "答案是B。不对。",
        "不能选B",
        "不应该选B",
        "别选B",
        "不应该是B",
        "I won't choose B.",
        "The answer is B#.",
        "So B and C are wrong.",
        "B is only true in winter.",
        "B不符合题意",
        "(b) oxygen is wrong",
        "b) first we add. c) then we divide.",
    ],
)
def test_a_letter_that_is_not_chosen_is_no_answer(text: str) -> None:
    assert not make_grader("choice").grade(text, "B", complete=True).correct
