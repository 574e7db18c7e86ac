"""Secrets: where they come from, how they are stored, and how they stay out of logs, errors and results.

A process has one `SecretAccess` (wiring: `world.secrets`). A worker reads from it when a call needs a secret:

    token = await room.read("shop-token")               # text, or a map of fields; NotFound says who was asked

    keychain = room.keychain(entries, Place(plan, run, root), render, {"workload": …}, request)
    fields = await keychain.entry("shop")               # fetched now, kept by its scope
    password = await keychain.field("db", "password")

Whatever is handed out by either is known to `room.redactor` from then on, so nobody has to register a value, except one
that comes from elsewhere: `room.redactor.remember(value)`. `room.redaction` is what the worker asks: it redacts lines
and faults, and finds a secret in a result. An output that is declared secret is sealed before it becomes a result,
`room.sealer.seal(value, run)`, and opened for the call that uses it, `room.sealer.open_all(input, run)`; by then no
result holds it any more, so nothing has to be excused.

No object here shows a secret: what holds one is `Hidden`, whose repr is ***.
"""
