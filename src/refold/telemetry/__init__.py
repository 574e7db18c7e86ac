"""What a server measures: metrics for Prometheus. Recording never fails a request and never delays a turn."""
