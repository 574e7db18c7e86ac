"""Event logs of NoETL, read to facts."""
