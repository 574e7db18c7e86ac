"""Static checks of a playbook that was read: everything that can be known before a run."""

from refold.authoring.checks.arcs import check_arcs
from refold.authoring.checks.graph import check_graph
from refold.authoring.checks.names import check_names
from refold.authoring.checks.scopes import Names
from refold.authoring.checks.secrets import check_secrets
from refold.authoring.checks.templates import check_templates
from refold.authoring.checks.tools import check_tools
from refold.authoring.reading import Reading
from refold.authoring.sketch import Sketch


def check(reading: Reading, sketch: Sketch) -> None:
    """The graph is looked at only if every name in it means something."""
    if check_names(reading, sketch):
        check_graph(reading, sketch)
    check_arcs(reading, sketch)
    names = Names(sketch)
    check_templates(reading, sketch, names)
    check_tools(reading, sketch, names)
    check_secrets(reading, sketch)
