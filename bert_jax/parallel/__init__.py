"""Devices and processes: mesh and shardings, rendezvous, watchdog, preemption, memory, chips.

chips.py        published peak figures of accelerators: a chip is one row of CHIPS
clusters.py     the processes of a run from a scheduler's variables: a scheduler is one row of CLUSTERS
energy.py       energy by counters of the hardware: a platform is one row of COUNTERS
joining.py      several processes as one run: they find each other, start JAX together and end together
memory.py       memory of a compiled program against memory of a device, before the first step
platform.py     the platform of a run, its compiler options, the cache of programs: a plugin is one row of PLUGINS
preemption.py   SIGTERM and Ctrl-C: all processes stop after the same step
relay.py        a process that keeps JAX's connection open when the coordinator dies
rendezvous.py   every process connects to process 0, which reports missing processes
sharding.py     the mesh, the placement of parameters and batches: a logical axis is one row of RULES
watchdog.py     ends a run that makes no progress, and names the process at fault
"""
