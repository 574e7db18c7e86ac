"""How a process ended, in words."""

import signal

from refold.core.outcomes import Fault
from refold.executors.limits import Limits

WHY = {
    "SIGKILL": "by SIGKILL, perhaps because the machine ran out of memory",
    "SIGXCPU": "by SIGXCPU: it has used up its {cpu} seconds of a processor, the setting `tool_cpu`",
}


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def death(code: int | None, last_words: str, limits: Limits) -> Fault:
    """Of a process that was still needed; None: nobody knows how it ended."""
    if code is None:
        return Fault("process_died", "the process was killed with its warden", code="SIGKILL", traceback=last_words)
    if code < 0:
        name = signal_name(-code)
        how = WHY.get(name, f"by {name}").format(cpu=limits.cpu)
        return Fault("process_died", f"the process was killed {how}", code=name, traceback=last_words)
    why = f"the process ended with exit code {code} before the step did"
    return Fault("process_died", why, code=code, traceback=last_words)
