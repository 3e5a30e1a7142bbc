"""The fault suite: harm done to the verbs at random, and what becomes of it.

    make faults MINUTES=20

__main__.py   the classes, a row of CLASSES each; trials until the time is up, and the table
world.py      what is right; verbs as processes that a fault may hit
outcome.py    what becomes of a trial: survived, detected, silent, traceback, hung
stops.py      signals at random moments, clocks that jump, another mesh
processes.py  one of several processes lost or slow, another number of them
writes.py     failing writes, syncs and renames, through shim.c
damage.py     damaged files
inputs.py     files from strangers, command lines, numbers that are not finite
"""
