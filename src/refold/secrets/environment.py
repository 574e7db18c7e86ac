"""Secrets in variables of the environment: `REFOLD_SECRET_<NAME>`."""

from collections.abc import Collection, Mapping

from refold.secrets.names import PREFIX, variable


class Environment:
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __repr__(self) -> str:
        return "Environment(***)"

    def about(self, name: str) -> str:
        return f"the environment ({variable(name)})"

    async def find(self, name: str) -> str | None:
        return self._variables.get(variable(name))

    def names(self) -> Collection[str]:
        return [each.removeprefix(PREFIX).lower() for each in self._variables if each.startswith(PREFIX)]
