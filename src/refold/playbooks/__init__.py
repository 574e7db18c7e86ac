"""YAML to plans. `yaml/` reads the text, `reader/` checks it against `language/`, the files here build steps, loops
and pipelines, and `checks/` looks at the whole.
"""
