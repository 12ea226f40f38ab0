"""``python -m labctl``."""

import sys
from contextlib import suppress
from pathlib import Path

# Python puts the present folder first, which may be a checkout of strangers: nothing is imported
# from there from here on. The installed program ``labctl`` does not have it at all.
if not sys.flags.safe_path:
    with suppress(FileNotFoundError):  # nothing is in a folder that was removed
        if Path(sys.path[0]).samefile("."):
            del sys.path[0]

from labctl.cli import main

if __name__ == "__main__":
    main()
