"""The words of ``hdc file recv``, as hdcd 3.2.0c understands them."""

import re
import time

import pytest

from labctl.hdc.daemon.sending import Request


@pytest.mark.parametrize(
    ("text", "remote", "local"),
    [
        ("-cwd / /a", "/a", "."),
        ('-cwd "/home/u u/" -z "/a b"  c', "/a b", "c"),
        ('/a" "b/c "l"\t', "/a b/c", "l"),
        ("/it's /a\\b", "/it's", "/a\\b"),
        ("/a\u3000b x", "/a\u3000b", "x"),
        # The last two words are the paths, whatever they are,
        ("F l/x l/y", "l/x", "l/y"),
        ("-cwd / l/q -z F", "-z", "F"),
        # or the last, where only one is none of an option.
        ("-cwd / F -a", "-a", "."),
        ("remote F", "F", "."),
        # A quote that is never closed joins what follows.
        ('-cwd / a"b l/x', "ab l/x", "."),
    ],
)
def test_words_of_a_request(text: str, remote: str, local: str) -> None:
    request = Request.parse(text)
    assert (request.remote, request.local) == (remote, local)


def test_options_count_wherever_they_stand() -> None:
    request = Request.parse('F -a x -m y -sync -z -b com.x -cwd "/home/u/"')
    assert request == Request("-cwd", "/home/u/", "/home/u/", "com.x", True, True, True, True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "Transfer path split failed"),
        ("/a", "Transfer path split failed"),
        ("-cwd /", "There is no local and remote path"),
        ("-cwd / -z", "There is no local and remote path"),
        ("-cwd / -b com.x", "There is no local and remote path"),
        ("F -x", "Unknown file option: -x"),
        ("F -cwd", "Unknown file option: -cwd"),
        (
            "-cwd / -b",
            (
                "[E005003] The parameter is missing, correct your input by referring below:\n"
                "Usage: hdc file recv [-b bundlename] remote local"
            ),
        ),
    ],
)
def test_words_that_ask_for_nothing(text: str, answer: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(answer)}$"):
        Request.parse(text)


def test_a_request_is_read_in_no_time_however_long() -> None:
    began = time.process_time()
    for text in (
        "y " + "x" * (1 << 22),
        '"" ' * (1 << 16),
        '"x' * (1 << 16) + " y",
        '"y' * 3 + "z",
    ):
        Request.parse("y " + text)
    Request.parse('y "' + "x" * (1 << 22))
    assert time.process_time() - began < 2
