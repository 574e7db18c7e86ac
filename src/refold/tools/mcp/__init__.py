"""The tool `mcp`: a client of the Model Context Protocol."""
