"""Static checks of a playbook that was read: everything that can be known before a run."""

from refold.authoring.arc_checks import check_arcs
from refold.authoring.graph_checks import check_graph
from refold.authoring.keychains import check_keychain
from refold.authoring.name_checks import check_names
from refold.authoring.reading import Reading
from refold.authoring.scopes import Names
from refold.authoring.sealed_checks import check_sealed
from refold.authoring.secret_checks import check_secrets
from refold.authoring.sketch import Sketch
from refold.authoring.template_checks import check_templates
from refold.authoring.tool_checks import check_tools


def check(reading: Reading, sketch: Sketch) -> None:
    """The graph is looked at only if every name in it means something."""
    if check_names(reading, sketch):
        check_graph(reading, sketch)
    check_arcs(reading, sketch)
    names = Names(sketch)
    check_templates(reading, sketch, names)
    check_sealed(reading, sketch)
    check_tools(reading, sketch, names)
    check_secrets(reading, sketch)
    check_keychain(reading, sketch)
