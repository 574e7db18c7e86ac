"""What answers for the names in desk.yaml: two tools, and a stand-in for a language model."""

from typing import Any

TICKETS = {17: {"title": "How do I log in?", "urgent": False}, 18: {"title": "The shop is down.", "urgent": True}}


def get_ticket(number: int) -> dict[str, Any]:
    return TICKETS[number]


def write(messages: list[dict[str, str]]) -> str:
    """Answer as a model would."""
    question = messages[-1]["content"]
    return f"Thank you for asking: {question}"


def send_answer(text: str) -> str:
    print("sent:", text)
    return text
