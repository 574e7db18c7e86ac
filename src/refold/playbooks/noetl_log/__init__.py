"""Reads event logs of NoETL: `refold noetl log` shows the run that a log amounts to.

`events.py` reads the rows, `log_reader.py` follows the visits of each step, `log.py` builds a plan and Refold's facts,
`results.py` has the names that NoETL's templates see, and `report.py` lists steps, results and end for people.
"""
