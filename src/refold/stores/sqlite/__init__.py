"""The durable store of one machine: a SQLite file that several processes may share."""
