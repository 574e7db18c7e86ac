"""The language of `.wf` files: words, grammar, keys, the files of a project, checks, and the plan that a file means.

A `.wf` file becomes the same plan as a playbook, and its problems are shown in the same way. What its texts and
conditions mean during a run is in `templates/wf_language.py`, and how answers are read in `templates/output_blocks.py`.
"""
