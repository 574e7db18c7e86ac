"""What Refold costs, measured: `python -m bench` prints tables and writes nothing unless it is told to."""
