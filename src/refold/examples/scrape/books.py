"""Reads title and price from pages about books, by the classes of their elements, and writes them as CSV."""

import csv
from html.parser import HTMLParser
from typing import Any


class Book(HTMLParser):
    """The texts of the elements that have one of the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = dict(attrs).get("class") or ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("title", "price"):
            self.found.setdefault(self._inside, data.strip())
        self._inside = ""


def main(pages: list[dict[str, Any]], links: list[str], out: str) -> dict[str, Any]:
    books = []
    for page in pages:
        if page["status_code"] == 200:
            parser = Book()
            parser.feed(page["text"])
            books.append((parser.found["title"], float(parser.found["price"].lstrip("€"))))
    books.sort(key=lambda book: book[1])
    with open(out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("title", "price"), *books])
    missing = [link for link, page in zip(links, pages, strict=True) if page["status_code"] == 404]
    return {"books": len(books), "missing": missing, "cheapest": books[0][0] if books else None}
