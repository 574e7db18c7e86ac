"""Schedules as data: which times they name, what they keep, and what follows when a time comes. All of it is pure: the
clock, the store and the runs are in `runtime/schedules.py`, and files of `kind: Schedule` in `playbooks/schedules/`."""
