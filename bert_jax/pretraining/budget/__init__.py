"""`pretrain --budget`: a time, tokens or FLOPs -> model size, batch size and steps.

amounts.py  budgets as text on the command line, "30m" or "50M tokens"
measure.py  useful FLOP/s of real training steps on the devices of this machine
plan.py     a recipe and a budget -> the config of the run, which its work directory records
rule.py     the rule that chooses sizes for a budget, a pure function with all constants
"""
