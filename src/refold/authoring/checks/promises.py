"""Steps that declare what comes of them."""

from msgspec import structs

from refold.authoring.reading import Fields, Reading
from refold.authoring.steps import Draft
from refold.core.plan import Call


def with_result(reading: Reading, draft: Draft) -> Draft:
    """The step with the schema of its result, if it declares one."""
    output: Fields | None = draft.fields.get("output")
    if output is None or not output.get("schema"):
        return draft
    if not isinstance(draft.step.work, Call):
        message = "`output` has no effect where no worker takes part"
        hint = "declare it in the playbook that is started, or leave it out"
        reading.at_key(draft.node, "output", "no-effect", message, hint)
        return draft
    draft.step = structs.replace(draft.step, result=output.get("schema"))
    return draft
