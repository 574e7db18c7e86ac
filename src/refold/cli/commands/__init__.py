"""One file for each group of commands: `runs.py` is `refold runs`, `dlq.py` is `refold dlq`."""
