"""`pretrain --budget`: a time, tokens or FLOPs -> model size, batch size and steps.

amounts.py  the words of the command line, "30m" or "50M tokens"
measure.py  useful FLOP/s of real training steps on the devices present
plan.py     a recipe and a budget -> the config of the run, recorded in its work directory
rule.py     the rule, a pure function: its constants are all that there is to tune
"""
