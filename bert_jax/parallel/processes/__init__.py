"""Several processes as one run.

joining.py     from the command line or the cluster to a running `jax.distributed`, and a common end
clusters.py    schedulers that describe the processes of a run: a cluster environment is one row of CLUSTERS
rendezvous.py  all processes connect to process 0, which names those that are missing
relay.py       keeps JAX's connection to its coordinator open when the coordinator dies
"""
