"""`pretrain --budget`: a time, tokens or FLOPs -> model size, batch size and steps.

amounts.py  budgets as text on the command line, "30m" or "50M tokens"
measure.py  useful FLOP/s of real training steps on the devices present
plan.py     a recipe and a budget -> the config of the run, recorded in its work directory
rule.py     the rule from a budget to sizes, a pure function with all constants
"""
