"""Agents that only seem to think: each answers its prompt, which it reads from standard input."""

import json
import sys

LONG = "This release corrects two crashes and one misspelt word"
SHORT = "Two crashes are corrected"


def answer(agent: str, prompt: str) -> dict[str, object]:
    if agent == "sorter":
        return {"markers": ["urgent"] if "crash" in prompt else []}
    if agent == "writer":
        return {"context": SHORT if "shorter" in prompt else LONG}
    notes = prompt.partition("Judge these notes: ")[2].partition("\n")[0]
    words = len(notes.split())
    return {"words": words, "confidence": 95, "summary": "shorter, please" if words > 6 else "good"}


print("<<<FLOW_OUTPUT>>>")
print(json.dumps(answer(sys.argv[1], sys.stdin.read())))
print("<<<END_FLOW_OUTPUT>>>")
