"""The slow proofs: thousands of seeds, programs and graphs, from a first seed that is printed and can be given."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> int:
    first = int(os.environ.get("REFOLD_FIRST_SEED", random.SystemRandom().randrange(10**9)))
    print(f"first seed {first}; to repeat: REFOLD_FIRST_SEED={first} make proof", flush=True)
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "proof",
        "-n",
        "2",
        "-q",
        "-rP",
        "--timeout",
        "3600",
        *sys.argv[1:],
    ]
    environment = {**os.environ, "REFOLD_FIRST_SEED": str(first)}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    print(f"{time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
