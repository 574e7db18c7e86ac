"""Sources: where the items of a loop come from, page by page. The catalog describes them; each family has a file."""
