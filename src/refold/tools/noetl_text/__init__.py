"""Values inside program text of NoETL files: quoted for the language they stand in, or refused."""
