"""The request of ``hdc file recv``.

hdcd looks for options among all words and takes the last two as the paths, whatever they are
(``src/common/file.cpp`` of developtools_hdc).
"""

import re
from dataclasses import dataclass

#: An unclosed quote extends to the end.
_WORD = re.compile(r'(?:[^ \t\r\n"]+|"[^"]*(?:"|\Z))+')
_NO_BUNDLE = (
    "[E005003] The parameter is missing, correct your input by referring below:\n"
    "Usage: hdc file recv [-b bundlename] remote local"
)


@dataclass
class Request:
    """The request in a FILE_INIT text: ``[-cwd DIR] [OPTION…] REMOTE [LOCAL]``."""

    remote: str = ""
    local: str = "."
    cwd: str = ""
    bundle: str = ""
    keep_times: bool = False
    keep_mode: bool = False
    update_if_new: bool = False
    compress: bool = False

    @classmethod
    def parse(cls, text: str) -> "Request":
        """Parse a text; only double quotes are special. Raises ValueError with hdcd's message."""
        words = [word.replace('"', "") for word in _WORD.findall(text)]
        if len(words) < 2:
            raise ValueError("Transfer path split failed")
        request = cls()
        options = request._take_options(words)
        if options == len(words):
            raise ValueError("There is no local and remote path")
        if options == len(words) - 1:
            request.remote = words[-1]
        else:
            request.remote, request.local = words[-2:]
        return request

    def _take_options(self, words: list[str]) -> int:
        """Store the options, wherever they are; return the words that hdcd counts for them."""
        count = 0
        for word, following in zip(words, [*words[1:], None], strict=True):
            match word:
                case "-cwd" if following is not None:
                    self.cwd = following
                    count += 1
                case "-b":
                    if following is None or len(words) == count + 1:
                        raise ValueError(_NO_BUNDLE)
                    self.bundle = following
                    count += 1
                case "-a":
                    self.keep_times = True
                case "-m":
                    self.keep_mode = True
                case "-sync":
                    self.update_if_new = True
                case "-z":
                    self.compress = True
                case "remote":  # a word of the protocol between client and server
                    pass
                case _ if word.startswith("-"):
                    raise ValueError(f"Unknown file option: {word}")
                case _:
                    continue
            count += 1
        return count
