"""The dialects `noetl.io/v2` and `noetl.io/v10`: published NoETL playbooks, read into the same plan."""
