"""The tools `sqlite`, `duckdb` and `postgres`, on one driver."""
