"""A server of known truth, a program of its own: TOKENS FIRST_S TOKEN_S SLOTS PORT."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from scripted_answers import Answer
from scripted_endpoint import scripted_endpoint
from scripted_metrics import Page


def main() -> None:
    tokens, first_s, token_s, slots, port = map(float, sys.argv[1:])
    # Its last token is the end, which has no text.
    answer = Answer([" word"] * (int(tokens) - 1), first_s=first_s, token_s=token_s)
    with scripted_endpoint(lambda _asked: answer, slots=int(slots), port=int(port)) as server:
        server.metrics = lambda counters: Page(counters.page())
        threading.Event().wait()


if __name__ == "__main__":
    main()
