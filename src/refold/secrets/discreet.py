"""What the worker asks before it tells anything: lines, faults and results without the secrets of this process."""

from typing import TYPE_CHECKING, Any

from msgspec import structs

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Ended, Program, Programs, Say

if TYPE_CHECKING:
    from refold.secrets.redactor import Redactor


class Discreet:
    """Costs nothing before the first secret: there is no redactor until then."""

    def __init__(self, redactor: "Redactor | None" = None) -> None:
        self.redactor = redactor

    def text(self, text: str) -> str:
        return text if self.redactor is None else self.redactor.redact(text)

    def fault(self, fault: Fault) -> Fault:
        if self.redactor is None or not self.redactor.knows:
            return fault
        told = {name: self.redactor.redacted(each) for name, each in structs.asdict(fault).items()}
        return structs.replace(fault, **told)

    def check_result(self, value: Any) -> None:
        path = self.where(value)
        if path is not None:
            why = f"the result holds a secret, at {path}: leave it out, or declare the output secret"
            raise ToolFailed(Fault("secret", why, retryable=False, data={"path": path}))

    def where(self, value: Any) -> str | None:
        return None if self.redactor is None else self.redactor.where(value)


class DiscreetPrograms:
    """Programs whose arguments hold no secret: every user of a machine can read those."""

    def __init__(self, programs: Programs, discretion: Discreet) -> None:
        self._programs, self._discretion = programs, discretion

    async def run(self, program: Program, say: Say | None = None) -> Ended:
        path = self._discretion.where([*program.argv, program.cwd])
        if path is not None:
            why = f"an argument of the program holds a secret ({path}), and others can read those; give it in `env`"
            raise ToolFailed(Fault("secret", f"{why} or `stdin`", retryable=False))
        return await self._programs.run(program, say)

    async def close(self) -> None:
        await self._programs.close()
