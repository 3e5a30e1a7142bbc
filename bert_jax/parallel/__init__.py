"""Devices and processes: mesh and shardings, rendezvous, watchdog, preemption, memory, chips.

chips.py        published peak figures of accelerators; add a row to CHIPS for a chip
clusters.py     the processes of a run, from the variables of a scheduler; add a row to CLUSTERS for a scheduler
energy.py       energy from hardware counters; add a row to COUNTERS for a platform
joining.py      several processes become one run: they find each other, start JAX together and end together
memory.py       whether a compiled program fits in the memory of a device, before the first step
platform.py     the platform of a run, its compiler options, the cache of programs; add a row to PLUGINS for a plugin
preemption.py   SIGTERM, Ctrl-C and SIGHUP: all processes stop after the same step
relay.py        a process that keeps JAX's connection open when the coordinator dies
rendezvous.py   all processes connect to process 0, which reports missing processes
sharding.py     the mesh, the placement of parameters and batches; add a row to RULES for a logical axis
watchdog.py     ends a run that makes no progress, and names the process at fault
"""
