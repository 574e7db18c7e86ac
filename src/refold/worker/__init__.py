"""The worker: knows a Desk and Tools, never the runtime."""
