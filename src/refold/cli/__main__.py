"""`python -m refold.cli` is the program `refold`."""

from refold.cli.main import main

main()
