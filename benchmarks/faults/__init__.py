"""Fault suite: disturb the verbs (subcommands) of bert-jax at random, and classify the outcomes.

    make faults MINUTES=20

__main__.py   CLASSES, the kinds of faults; runs trials until the time is up, and prints the table
world.py      results of undisturbed verbs; starts verbs as processes that can be disturbed
outcome.py    outcomes of a trial: survived, detected, silent, traceback, hung
stops.py      signals at random moments, clocks that jump, another mesh
processes.py  one of several processes is lost or slow; a run is resumed by another number of processes
writes.py     failing writes, syncs and renames, caused by shim.c
damage.py     damaged files
inputs.py     hostile files, random command lines, NaN and infinite numbers
"""
