"""All routes. What is not here cannot be served, and each line says who may use it."""

from functools import cache

from msgspec import json

from refold.server import audit, health, history, overview, page_files, runs, steering, streams, tokens
from refold.server.openapi import document
from refold.server.routes import (
    API,
    BATCH_LIMIT,
    DEFINITION_LIMIT,
    IMPORT_LIMIT,
    NAMESPACE,
    Answer,
    Call,
    Route,
    RouteTable,
)

N = NAMESPACE
RUN = f"{N}/runs/{{run}}"


async def show_document(call: Call) -> Answer:
    return Answer(raw=encoded_document(call.service.version), headers={"cache-control": "no-cache"})


@cache
def encoded_document(version: str) -> bytes:
    return json.encode(document(ROUTES, version))


ROUTES: tuple[Route, ...] = (
    Route("GET", "/livez", "open", health.is_alive, "Whether the process answers."),
    Route("GET", "/readyz", "open", health.is_ready, "Whether the store answers and can be written."),
    Route("GET", "/healthz", "open", health.is_ready, "The same as /readyz."),
    Route("GET", "/version", "open", health.version, "Name and version of the server."),
    Route("GET", "/openapi.json", "open", show_document, "This API as an OpenAPI 3.1 document."),
    Route("GET", "/", "open", page_files.show_index, "The page.", media="text/html"),
    Route("GET", "/assets/{file}", "open", page_files.show_file, "A file of the page.", media="text/javascript"),
    Route("GET", "/metrics", "read", health.show_metrics, "Metrics for Prometheus.", media="text/plain"),
    Route("GET", f"{API}/me", "any", overview.me, "Who this credential is, and what it may do."),
    Route(
        "POST", f"{API}/sign-in", "ticket", tokens.sign_in, "Exchange a ticket for a cookie.", body=tokens.SignInBody
    ),
    Route("DELETE", f"{API}/sign-in", "any", tokens.sign_out, "Sign out.", status=204),
    Route("GET", f"{N}/overview", "read", overview.overview, "Counts by status, what needs somebody, queues."),
    Route("GET", f"{N}/runs", "read", runs.list_runs, "List runs, the newest first.", query=runs.RunsQuery),
    Route("GET", f"{N}/runs:count", "read", runs.count_runs, "Count runs, up to 10,000.", query=runs.RunsQuery),
    Route("POST", f"{N}/runs", "start", steering.start, "Start a run.", body=steering.StartBody, status=201),
    Route(
        "POST",
        f"{N}/runs:batch",
        "start",
        steering.start_batch,
        "Start up to 1,000 runs, each with its own outcome.",
        body=steering.BatchBody,
        limit=BATCH_LIMIT,
    ),
    Route("GET", RUN, "read", runs.show_run, "Show a run: status, steps, reasons, error.", query=runs.RunQuery),
    Route("GET", f"{RUN}/facts", "read", runs.show_facts, "The log of a run.", query=runs.FactsQuery),
    Route("GET", f"{RUN}/facts/{{n}}", "read", history.show_fact, "One fact of a run."),
    Route("GET", f"{RUN}/at/{{n}}", "read", history.show_moment, "A run as it was after a fact."),
    Route(
        "GET",
        f"{RUN}/frames",
        "read",
        history.show_frames,
        "What each fact changed in the rows of a run, from a keyframe on.",
        query=history.FramesQuery,
    ),
    Route("GET", f"{RUN}/usage", "read", history.show_usage, "What a run has used, and its budget."),
    Route("DELETE", RUN, "operate", history.delete_run, "Remove a run that is over, with its child runs.", status=204),
    Route("GET", f"{RUN}/export", "values", history.export_run, "The whole run as one file.", is_download=True),
    Route(
        "POST",
        f"{N}/runs:import",
        "operate",
        history.import_run,
        "Take a run from an export.",
        body=history.ImportBody,
        status=201,
        limit=IMPORT_LIMIT,
    ),
    Route("GET", f"{RUN}/loops/{{step}}/items/{{i}}", "read", history.show_item, "One item of a loop."),
    Route("GET", f"{RUN}/why", "read", runs.show_why, "Why a run and its steps wait."),
    Route("GET", f"{RUN}/children", "read", runs.show_children, "The runs that a run has started."),
    Route("GET", f"{RUN}/loops/{{step}}/items", "read", runs.show_items, "The items of a loop.", query=runs.ItemsQuery),
    Route("GET", f"{RUN}/input", "values", runs.show_input, "The input of a run.", query=runs.ValueQuery),
    Route("GET", f"{RUN}/result", "values", runs.show_result, "The result of a run.", query=runs.ValueQuery),
    Route("GET", f"{RUN}/context", "values", runs.show_context, "The context of a run.", query=runs.ValueQuery),
    Route("GET", f"{RUN}/lines", "values", runs.show_lines, "What its steps printed.", query=runs.LinesQuery),
    Route(
        "GET",
        f"{RUN}/stream",
        "read",
        streams.stream_log,
        "The log of a run as a stream of events.",
        query=streams.LogQuery,
        is_stream=True,
        media="text/event-stream",
    ),
    Route("POST", f"{RUN}/pause", "operate", steering.pause, "Pause a run.", body=steering.NoBody),
    Route("POST", f"{RUN}/resume", "operate", steering.resume, "Resume a paused run.", body=steering.ResumeBody),
    Route("POST", f"{RUN}/cancel", "operate", steering.cancel, "Cancel a run.", body=steering.CancelBody),
    Route("POST", f"{RUN}/retry", "operate", steering.retry, "Retry what failed.", body=steering.RetryBody),
    Route("POST", f"{RUN}/migrate", "operate", steering.migrate, "Follow another plan.", body=steering.MigrateBody),
    Route("POST", f"{RUN}/signals/{{name}}", "operate", steering.signal, "Send a signal.", body=steering.SignalBody),
    Route(
        "POST",
        f"{RUN}/loops/{{step}}/items:retry",
        "operate",
        steering.retry_items,
        "Run items of a loop again.",
        body=steering.ItemsBody,
    ),
    Route(
        "POST",
        f"{RUN}/loops/{{step}}/items:cancel",
        "operate",
        steering.cancel_items,
        "Cancel items of a loop.",
        body=steering.ItemsBody,
    ),
    Route("GET", f"{N}/gates", "read", steering.list_gates, "What waits for people.", query=steering.GatesQuery),
    Route(
        "POST",
        f"{RUN}/gates/{{step}}/{{visit}}",
        "decide",
        steering.decide,
        "Decide a gate.",
        body=steering.DecisionBody,
    ),
    Route(
        "POST",
        f"{RUN}/questions/{{id}}",
        "decide",
        steering.answer_question,
        "Answer a question.",
        body=steering.AnswerBody,
    ),
    Route(
        "GET",
        f"{N}/dead-letters",
        "read",
        overview.list_dead_letters,
        "What failed permanently, by its reason.",
        query=runs.ListQuery,
    ),
    Route("GET", f"{N}/dead-letters/{{fingerprint}}", "read", overview.show_dead_letter, "Everything of one reason."),
    Route("GET", f"{N}/workflows", "read", overview.list_workflows, "What can be started."),
    Route("GET", f"{N}/workflows/{{name}}", "read", overview.show_workflow, "One workflow, with its plan."),
    Route(
        "PUT",
        f"{N}/workflows/{{name}}",
        "write",
        overview.put_workflow,
        "Store a playbook under its name.",
        body=overview.DefinitionBody,
        limit=DEFINITION_LIMIT,
    ),
    Route(
        "POST",
        f"{N}/workflows:check",
        "write",
        overview.check_workflow,
        "Check a playbook without storing it.",
        body=overview.DefinitionBody,
        limit=DEFINITION_LIMIT,
    ),
    Route("GET", f"{N}/plans/{{hash}}", "values", runs.show_plan, "A plan by its hash."),
    Route("GET", f"{N}/workers", "read", overview.list_workers, "The workers that are alive, and what they hold."),
    Route("GET", f"{N}/queues", "read", overview.list_queues, "Depth and age of each queue."),
    Route(
        "GET", f"{N}/audit", "administer", audit.list_audit, "Who did what, the oldest first.", query=audit.AuditQuery
    ),
    Route("GET", f"{N}/tokens", "administer", tokens.list_tokens, "List tokens, without their secrets."),
    Route(
        "POST",
        f"{N}/tokens",
        "administer",
        tokens.create_token,
        "Create a token; its text is shown once.",
        body=tokens.TokenBody,
        status=201,
    ),
    Route("DELETE", f"{N}/tokens/{{id}}", "administer", tokens.revoke_token, "Revoke a token.", status=204),
    Route(
        "GET",
        f"{N}/stream",
        "read",
        streams.stream_topics,
        "Several topics on one stream of events.",
        query=streams.TopicsQuery,
        is_stream=True,
        media="text/event-stream",
    ),
)

TABLE = RouteTable(ROUTES)

OPEN = tuple(route for route in ROUTES if route.need == "open")
"""Routes without a credential; a test counts them."""
