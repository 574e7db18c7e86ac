"""The text of a playbook: guarded YAML with positions."""
