"""Sends an invoice to a folder, which replaces a mail server that is not always available."""

import json
from pathlib import Path
from typing import Any


def main(file: str, out: str, context: dict[str, Any]) -> dict[str, Any]:
    """Fail the first try for every third invoice, and every try for an invoice without an address."""
    invoice = json.loads(Path(file).read_text())
    if "@" not in invoice["to"]:
        raise ValueError(f"{file}: {invoice['to']!r} is not an address")
    if invoice["number"] % 3 == 0 and context["attempt"] == 1:
        raise ConnectionError("the mail server does not answer")
    Path(out).mkdir(exist_ok=True)
    with Path(out, Path(file).stem + ".txt").open("a") as mail:  # a second line would be a second mail
        mail.write(f"To: {invoice['to']}, {invoice['amount']} due [{context['idempotency_key']}]\n")
    return {"number": invoice["number"], "amount": invoice["amount"]}
