"""Python workflows: classes, events, the context of a body, durable calls, `map`, live objects."""
