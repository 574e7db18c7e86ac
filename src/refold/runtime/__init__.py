"""The runtime: delivers mail to runs, one commit for many of them, and gives users the engine and its handles.

A turn (`turn.py`) reads mail (`mail.py`, `accept.py`), lets the core decide and writes the facts. `mailroom.py` makes
batches of mail, `background.py` finds what is due, and `desk.py` is where workers claim and report. Deciding itself is
in `core/`, storing in `stores/`, and running tools in `worker/`.
"""
