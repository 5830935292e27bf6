"""The installed command: answers Ctrl-C from its first line on, while the package is still being imported.

It stands beside the package, as importing anything from the package imports all of it, which takes some seconds.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130
"""What a shell reports of a command that Ctrl-C ended."""


def main() -> None:
    """Run `catchment`. A Ctrl-C that is to be ignored, as in the background of a shell, stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _exit)
    from catchment.app.main import main as run

    run()


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    """End this process with one line: an exception would come out of whatever import or call to Java is under way.

    Spark's Java process ends as its input does, with all its workers, and clears up after itself.
    """
    show_cursor = "\r\x1b[K\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}interrupted\n".encode())
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
