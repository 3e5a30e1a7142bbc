"""Devices and processes: where arrays are placed, and how many processes behave as one run.

sharding.py    the mesh, the placement of parameters and batches: a logical axis is one row of RULES
chips.py       published peak figures of accelerators: a chip is one row of CHIPS
platform.py    the platform of a run, chosen or found: a plugin of JAX is one row of PLUGINS
energy.py      energy by counters of the hardware: a platform is one row of COUNTERS
memory.py      memory of a compiled program against memory of a device, before the first step
compilation.py compiler options, and the cache of compiled programs
preemption.py  SIGTERM and Ctrl-C: all processes stop after the same step
watchdog.py    ends a run that makes no progress, and names the process at fault
processes/     several processes as one run: how they find each other and start JAX together
"""
