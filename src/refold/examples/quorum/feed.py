"""Asks a feed for the price of a day. Here a feed is a file; it replaces a service that may be late."""

import json
from pathlib import Path


def main(feed: str, day: str) -> float:
    told = json.loads(Path("feeds", f"{feed}.json").read_text())
    if told["day"] != day:
        raise ValueError(f"the price of {feed} is of {told['day']}, not of {day}")
    return float(told["price"])
