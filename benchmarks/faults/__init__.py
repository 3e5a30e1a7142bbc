"""The fault suite: harm done to the verbs at random, and its outcomes.

    make faults MINUTES=20

__main__.py   the classes, a row of CLASSES each; trials until the time is up, and the table
world.py      undisturbed results; verbs as processes that a fault may hit
outcome.py    outcomes of a trial: survived, detected, silent, traceback, hung
stops.py      signals at random moments, clocks that jump, another mesh
processes.py  one of several processes lost or slow; a run resumed by another number of processes
writes.py     failing writes, syncs and renames, through shim.c
damage.py     damaged files
inputs.py     files from strangers, command lines, numbers that are not finite
"""
