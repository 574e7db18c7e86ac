"""Names for runs that people can remember and type."""

ADJECTIVES = """
able airy apt bold brave brief bright brisk calm civil clean clear clever cool cosy crisp curious daring deep eager
early easy even fair fancy fast fine firm fleet fond frank free fresh gentle glad golden good grand great green happy
hardy honest humble ideal jolly just keen kind large lasting light lively loyal lucky mellow merry mild modest neat
nimble noble novel open patient placid plain polite prime prompt proud pure quick quiet rapid rare ready regal rich
robust rosy round royal safe sharp shiny silent silver sincere smart smooth snug sober solid sound spry steady still
strong sturdy subtle sunny super sure swift tall tender tidy tough true upbeat vast vivid warm wary wide wild willing
wise witty young zesty
"""
NOUNS = """
acorn alder amber apple arbor aspen badger bay beacon bear beaver birch bison breeze bridge brook canyon cedar cherry
cliff cloud clover comet coral cove crane creek crow dale dawn deer delta dove dune eagle elk elm ember falcon fern
field finch fir fjord flame flint forest fox frost garden glade glen grove gull harbor hare hawk hazel heron hill
holly island ivy jay juniper kite lake lark leaf lily linden lion lotus lynx maple marsh meadow mesa moon moss oak
oasis ocean olive opal orchid otter owl palm peak pearl pebble pine plain plum pond poplar quail quartz rain raven
reef ridge river robin rose sage sky slope snow sparrow spring spruce star stone storm stream summit swan thorn tide
tulip valley violet wave willow wren yarrow
"""
LONGEST = 24  # characters of the workflow's name that are kept


def run_name(workflow: str, run: str) -> str:
    """Follows from the run's id, so that a run that is started twice under one key has one name."""
    adjectives, nouns = ADJECTIVES.split(), NOUNS.split()
    number = int(run[:12], 16)
    kept = "".join(char if char.isalnum() or char in "._" else "-" for char in workflow).strip("-")[:LONGEST]
    noun, adjective = divmod(number, len(adjectives))
    return f"{kept or 'run'}-{adjectives[adjective]}-{nouns[noun % len(nouns)]}"
