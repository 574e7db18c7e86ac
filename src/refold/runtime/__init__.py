"""The shell around the core: it may crash at any moment and lose nothing."""
