"""A recipe compiled for absent devices: memory, kernels, time, cost.

dry_run.py   a recipe and a topology -> a report: memory, cost and time of each phase
estimate.py  cost and a chip's peak figures -> bounds of the time of a step
gpus.py      the GPUs of an absent host: a GPU is one row of GPUS (and one row of CHIPS)
hlo.py       the text of a compiled program, parsed
hlo_cost.py  FLOPs, bytes and collectives of a parsed program: NO_BYTES lists instructions that move no data
kernels.py   kinds of kernels: a library's call is one row of CALLS
report.py    a report as text and as JSON: a line of the table is one row of `_phase_rows`
topology.py  the devices of an absent TPU slice: a generation of TPUs is one row of AXES (and one row of CHIPS)
"""
