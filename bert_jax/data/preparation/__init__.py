"""Documents -> a corpus on the disk: the local runner, and the same as an Apache Beam pipeline."""
