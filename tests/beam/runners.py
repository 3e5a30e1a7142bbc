"""Options of Beam's local runners."""

IN_MEMORY = ("--runner=FnApiRunner",)
RETRYING = ("--runner=BundleBasedDirectRunner",)  # gives up a bundle after four attempts


def processes(number):
    return (*IN_MEMORY, "--direct_running_mode=multi_processing", f"--direct_num_workers={number}")


RUNNERS = {
    "default": (),
    "direct": ("--runner=DirectRunner",),
    "bundles": RETRYING,
    "in memory": IN_MEMORY,
    "every bundle thrice": (*IN_MEMORY, "--direct_runner_bundle_repeat=2"),
    "threads": (*IN_MEMORY, "--direct_running_mode=multi_threading", "--direct_num_workers=3"),
    **{f"{number} processes": processes(number) for number in (1, 2, 3)},
}
