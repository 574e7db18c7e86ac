"""Hands mail to runs where no engine is at work: a start, a pause, a cancellation, each as one commit."""

import hashlib
from typing import Any

from refold.core import codec
from refold.core.plan import Plan, canonical, hash_of, plan_hash
from refold.errors import Conflict
from refold.runtime.children import fits
from refold.runtime.mail import Look, Mail, Start
from refold.runtime.turn import Delivery, Turns


def run_of_key(key: str) -> str:
    """The id follows from the key, so that however many start it at once, there is one run."""
    return hashlib.sha256(f"key/{key}".encode()).hexdigest()[:32]


class Intake:
    """Synchronous. Nobody executes anything here: whoever serves the store finds what has changed."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def register(self, plan: Plan) -> None:
        """Make a workflow known, so that others can start it as their child."""
        data = canonical(plan)
        self.turns.store.put_plan(hash_of(data), data)

    def start(self, plan: Plan, input: dict[str, Any], run: str, name: str = "", key: str = "", code: str = "") -> bool:
        """False if the key has its run already."""
        codec.check_value(input, "input")
        try:
            fit = bool(fits(plan, input))  # before the lock is taken, for it may take long
            self.send(run, Start(canonical(plan), plan_hash(plan), input, name, key, code=code, fits=fit))
        except Conflict:
            if not key:
                raise
            return False
        return True

    def send(self, run: str, mail: Mail) -> None:
        """Raises what the run has against it; letters that follow from it are read by their receivers too."""
        post = Delivery(run, mail)
        receivers = self.turns.commit([post]).sent_to
        if post.error is not None:
            raise post.error
        while receivers:
            receivers = self.turns.commit([Delivery(each, Look()) for each in dict.fromkeys(receivers)]).sent_to
