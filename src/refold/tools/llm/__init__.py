"""The tool `llm`: a question to a language model."""
