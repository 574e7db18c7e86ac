"""The worker: claims commands at a Desk, runs their tools, reports the outcomes and keeps its leases alive.

It knows ports only. What a tool does is in `tools/`, where its body runs is in `executors/`, and what follows from an
outcome is decided by the runtime.
"""
