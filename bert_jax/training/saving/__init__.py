"""How a run is kept, beside its checkpoints themselves (checkpoint.py).

cadence.py  when a run saves, and which checkpoints it keeps
mirror.py   a run on object storage: its small files on the local disk, and which process owns it
"""
