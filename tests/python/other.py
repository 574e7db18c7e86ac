"""Another module with a class of a name that is used elsewhere too."""

from refold import Event


class Page(Event):
    n: int
