"""The program `refold`: small, so that it can be interrupted from the first moment on."""

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Leaves at once: what the interpreter would tidy up goes with the process."""
    gc.disable()  # to load modules makes no garbage; what works for long turns it on again
    try:
        from refold.cli.commands import called

        code = called(sys.argv[1:])
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        code = 130
    os._exit(code)
