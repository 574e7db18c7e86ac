"""Where the items of a loop come from, page by page: one file for each kind or family."""
