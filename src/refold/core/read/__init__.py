"""State to what people see: summaries, progress, items, reasons for waiting, texts of facts, dead letters."""
