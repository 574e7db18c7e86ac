"""Reads maps and lists of a playbook by tables of keys, and collects problems with their places."""
