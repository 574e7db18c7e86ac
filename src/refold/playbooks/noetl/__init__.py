"""Playbooks in the language of NoETL, read to the same plans."""
