"""Logistic regression with two features, in plain Python: rounds of gradient descent, or only a test with no rounds."""

from math import exp, log
from typing import Any

RATE = 0.2


def main(rows: list[list[float]], weights: list[float], rounds: int = 0) -> dict[str, Any]:
    for _ in range(rounds):
        weights = step(rows, weights)
    told = [(chance(row, weights), row[2]) for row in rows]
    right = sum((p > 0.5) == bool(y) for p, y in told)
    loss = -sum(log(p if y else 1 - p) for p, y in told) / len(rows)
    return {"weights": weights, "accuracy": round(right / len(rows), 4), "loss": round(loss, 6)}


def step(rows: list[list[float]], weights: list[float]) -> list[float]:
    slope = [0.0, 0.0, 0.0]
    for row in rows:
        error = chance(row, weights) - row[2]
        for n, value in enumerate((1.0, row[0], row[1])):
            slope[n] += error * value / len(rows)
    return [w - RATE * s for w, s in zip(weights, slope, strict=True)]


def chance(row: list[float], weights: list[float]) -> float:
    z = weights[0] + weights[1] * row[0] + weights[2] * row[1]
    return min(max(1 / (1 + exp(-max(min(z, 50), -50))), 1e-9), 1 - 1e-9)
