"""The preparation as an Apache Beam pipeline: the same bytes as `prepare`, on as many machines as the runner has.

    partitions -> chunks -> records -> shards (each in the memory of one worker) -> indexes and manifest (on one worker)

Before that, where it is asked for: chunks -> cleaned texts, which are read instead of the input; chunks -> signatures
-> decisions about copies (on one worker). What these leave is in files beside the output until the manifest is there.

Every step is a pure function of its input, and every file appears complete under its final name. So a step that the
runner repeats, or runs on two machines at once, leaves the same files.

prepare.py   `prepare_with_beam`, which the verb calls
pipeline.py  Apache Beam itself: the pipeline that its options ask for, and the errors of its workers
cleaning.py  partitions -> partitions of cleaned texts
copies.py    partitions -> decisions about copies, and the signatures that the corpus keeps
records.py   partitions -> shards, indexes and manifest
"""
