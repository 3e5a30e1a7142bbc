"""A recipe compiled for devices that are not there: memory, kernels, time, cost.

dry_run.py   a recipe and a topology -> a report: memory, cost and time of each phase
estimate.py  cost and a chip's peak figures -> bounds of the time of a step
gpus.py      the GPUs of a host that is not there: a GPU is one row of GPUS (and one of CHIPS)
hlo.py       the text of a compiled program, parsed
hlo_cost.py  FLOPs, bytes and collectives of a parsed program: an instruction that moves no data is a word of NO_BYTES
kernels.py   kinds of kernels: a library's call is one row of CALLS
report.py    a report as text and as JSON: a line of the table is one row of `_phase_rows`
topology.py  the devices of a TPU slice that is not there: a generation of TPUs is one row of AXES (and one of CHIPS)
"""
