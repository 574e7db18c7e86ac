"""Workflows as data: what playbooks and Python workflows become, to be written by hand or by another program."""

from refold.core.plan import Arc, Call, Child, Fail, Gate, Input, Loop, Plan, Poll, Quality, Retry, Source, Step, Wait

__all__ = [
    "Arc",
    "Call",
    "Child",
    "Fail",
    "Gate",
    "Input",
    "Loop",
    "Plan",
    "Poll",
    "Quality",
    "Retry",
    "Source",
    "Step",
    "Wait",
]
