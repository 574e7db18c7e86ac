"""Draws days as bars, in SVG on an HTML page, and replaces the page atomically."""

import os
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, GAP = 60, 160, 12
PAGE = """<!doctype html>
<meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1>
<p>{visits} visits, {orders} orders: {rate:.1f} %</p>
<svg viewBox="0 0 {width} 200" width="{width}" font-family="sans-serif" font-size="11">
{bars}
</svg>
"""
BAR = """<rect x="{x}" y="{y}" width="48" height="{high}" fill="#4a7"><title>{day}</title></rect>
<text x="{x}" y="{above}">{visits}</text><text x="{x}" y="190">{short}</text>"""


def main(days: list[dict[str, Any]], title: str, file: str) -> dict[str, Any]:
    """Return the figures of the page, and its path."""
    most = max(each["visits"] for each in days)
    bars = "\n".join(bar(n, each, most) for n, each in enumerate(days))
    visits, orders = (sum(each[name] for each in days) for name in ("visits", "orders"))
    rate = 100 * orders / visits
    text = PAGE.format(title=escape(title), visits=visits, orders=orders, rate=rate, width=len(days) * WIDTH, bars=bars)
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".new"), path)
    return {"file": file, "visits": visits, "orders": orders, "rate": round(rate, 1)}


def bar(n: int, each: dict[str, Any], most: int) -> str:
    high = round(HEIGHT * each["visits"] / most)
    y = HEIGHT - high + 15
    return BAR.format(x=n * WIDTH + GAP // 2, y=y, above=y - 4, high=high, short=escape(each["day"][5:]), **each)
