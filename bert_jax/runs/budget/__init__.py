"""`bert-jax pretrain --budget`: from a time, a number of tokens or of FLOPs to a size, a batch and a number of steps.

amounts.py  the words of the command line, "30m" or "50M tokens"
rule.py     the rule, a pure function: its constants are all that there is to tune
measure.py  useful FLOP/s of real training steps on the devices present
plan.py     a recipe and a budget -> the config of the run, recorded in its work directory
"""
