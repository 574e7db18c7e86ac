"""What the command line, the server and the page all ask of a store: runs, steps, items, gates and questions, dead
letters, workers, and why a run does not continue. Everything is read through `ports.Views` and computed by the core;
nothing is printed, formatted or written here.
"""
