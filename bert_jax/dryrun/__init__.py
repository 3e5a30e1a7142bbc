"""The dry run of a recipe: memory, kernels, time and cost from its compiled programs, without the devices.

dry_run.py   the report on a recipe and a topology: memory, cost and time of each phase
estimate.py  bounds of the time of a step, from its cost and the peak figures of a chip
gpus.py      the GPUs of an absent host; add a row to GPUS (and to CHIPS) for a GPU
hlo.py       a parser for the text of a compiled program
hlo_cost.py  FLOPs, bytes and collectives of a parsed program; NO_BYTES lists instructions that move no data
kernels.py   kinds of kernels; add a row to CALLS for a library call
report.py    a report as text and as JSON; add a row to `_phase_rows` for a line of the table
topology.py  the devices of an absent TPU slice; add a row to AXES (and to CHIPS) for a TPU generation
"""
