"""Playbooks: from YAML text to plans.

`playbook.py` reads a file. `yaml/` reads the text, `reader/` checks maps against the tables in `language/`, the files
here build steps, loops, tools and pipelines, `blocks/` compiles blocks to steps, and `checks/` checks the whole.
`noetl/`
reads playbooks of NoETL to the same plans, and `noetl_log/` reads event logs of NoETL. `schema.py` and `draw.py` print
the JSON Schema and drawings. Python workflows are in `python/`, not here.
"""
