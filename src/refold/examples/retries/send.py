"""Sends an invoice: to a folder, in place of a mail server that is not always there."""

import json
from pathlib import Path
from typing import Any


def main(file: str, out: str, context: dict[str, Any]) -> dict[str, Any]:
    """Fails at first for every third invoice, and always for one without an address."""
    invoice = json.loads(Path(file).read_text())
    if "@" not in invoice["to"]:
        raise ValueError(f"{file}: {invoice['to']!r} is no address")
    if invoice["number"] % 3 == 0 and context["attempt"] == 1:
        raise ConnectionError("the mail server does not answer")
    Path(out).mkdir(exist_ok=True)
    with Path(out, Path(file).stem + ".txt").open("a") as mail:  # a second line would be a second mail
        mail.write(f"To: {invoice['to']}, {invoice['amount']} due [{context['idempotency_key']}]\n")
    return {"number": invoice["number"], "amount": invoice["amount"]}
