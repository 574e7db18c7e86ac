"""Executors: where the body of a step runs, in this process or in a process of its own.

`inline.py` runs functions in this process. `process_services.py` has everything that runs in other processes: warm
interpreters for Python functions (`interpreter_pool.py`) and programs (`programs.py`). Both are started by supervisor
processes (`supervised.py`), which end a program together with everything it has started. What a step does is the
subject of `tools/` and `python/`, not of this room.
"""
