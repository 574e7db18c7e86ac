"""Facts to state. A file here believes what the log says; it never judges and never issues work."""
