"""`python -m refold.cli` is the program `refold`."""

from refold.cli.app import main

main()
