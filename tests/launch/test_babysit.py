"""`launch/tpu_pod.sh babysit`, through preemptions and crashes, against a stand-in gcloud and local processes."""

import json
import signal

import pytest

from tests.launch.cloud import NAME, alive, wait_for

STEPS = list(range(1, 41))
FAST = ("--poll", "0.1")


@pytest.mark.slow
def test_babysit_installs_a_new_package_before_the_next_start(cloud) -> None:
    wheel = cloud.place / "bert_jax-0.1.0-py3-none-any.whl"
    cloud.settings["PACKAGE"] = str(wheel)
    wheel.write_text("a wheel")
    cloud.script_of((1, 5))
    cloud.call("babysit", *FAST, "--max_failures", "1", status=1)
    wheel.write_text("a fixed wheel")
    assert "setting up 2 of 2 hosts" in cloud.call("babysit", *FAST)
    assert cloud.steps() == STEPS
    assert {(cloud.home(host) / wheel.name).read_text() for host in range(2)} == {"a fixed wheel"}


@pytest.mark.slow
def test_babysit_bears_a_package_that_is_gone(cloud) -> None:
    """The hosts have it, unless the slice is a new one."""
    wheel = cloud.place / "bert_jax-0.1.0-py3-none-any.whl"
    cloud.settings["PACKAGE"] = str(wheel)
    wheel.write_text("a wheel")
    cloud.env["STANDIN_SECONDS"] = "0.2"
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 3)
    wheel.unlink()
    for host in range(2):
        cloud.kill(host)
    wait_for(lambda: len(cloud.starts(0)) == len(cloud.starts(1)) == 2)
    cloud.preempt()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 2, out
    assert "no such file; build it with" in out
    assert "The slice still costs money" in out


@pytest.mark.slow
def test_babysit_from_nothing_through_preemption_to_the_end(cloud) -> None:
    cloud.use_bucket()
    cloud.env["STANDIN_SECONDS"] = "0.2"
    process = cloud.start("babysit", *FAST, "--delete_when_done")
    wait_for(lambda: len(cloud.steps()) > 12)
    cloud.env["STANDIN_SECONDS"] = "0.01"
    cloud.preempt()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert cloud.steps() == STEPS
    assert len(cloud.starts(0)) == len(cloud.starts(1)) == 2
    # The node is preempted a moment before its queued resource is suspended: babysit may see either.
    assert "the slice is gone (SUSPENDED)" in out or "the slice is gone (PREEMPTED)" in out
    assert "starting on 2 hosts after step 10" in out
    assert "finished: step 40 is saved" in out
    assert cloud.verbs().count("create") == cloud.verbs().count("delete") == 2
    assert not (cloud.cloud / NAME).exists()


@pytest.mark.slow
def test_several_slices_are_lost_and_created_together(cloud) -> None:
    """Two slices of one host."""
    cloud.settings["SLICES"] = "2"
    cloud.env |= {"HOSTS": "1", "STANDIN_SECONDS": "0.2"}
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 12)
    assert [word for word in cloud.calls()[1] if word.startswith("--node")] == ["--node-count=2"]
    of_one = cloud.call("logs", "--slice", "1", "--worker", "0", "--dry_run")
    assert of_one.startswith("gcloud compute tpus queued-resources ssh pod --worker=0 ")
    assert " --node=1 " in of_one
    cloud.env["STANDIN_SECONDS"] = "0.01"
    (cloud.cloud / NAME / "node-1").write_text("PREEMPTED")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert cloud.steps() == STEPS
    assert "the slice is gone (PREEMPTED)" in out
    # Hosts of all slices have the same numbers: the names of their logs say which slice. The first host alone prints.
    assert [(cloud.home(host) / "slice").read_text() for host in range(2)] == ["0\n", "1\n"]
    assert {path.name.partition("_")[2] for path in (cloud.workdir / "logs").iterdir()} == {"slice-0-host-0.log"}
    assert cloud.verbs().count("create") == 2
    assert len(cloud.starts(0)) == len(cloud.starts(1)) == 2


@pytest.mark.slow
def test_babysit_can_be_stopped_and_started_again(cloud) -> None:
    cloud.env["STANDIN_SECONDS"] = "0.05"
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 3)
    cloud.interrupt(process)
    out = cloud.call("babysit", *FAST)
    assert "starting" not in out  # it was still running
    assert "Attempting to connect" not in out  # for each host at each poll
    assert "the slice still costs money" in out
    assert cloud.steps() == STEPS
    assert len(cloud.starts()) == 1
    assert (cloud.cloud / NAME).exists()


def test_babysit_starts_again_after_crashes_hangs_and_signals(cloud) -> None:
    cloud.script_of((1, 12), (124, 23), (124, 24), (134, 33))
    (cloud.script / "next-0").write_text(json.dumps([(1, 12), (124, 23), (135, 24), (134, 33)]))
    out = cloud.call("babysit", *FAST)
    assert cloud.steps() == STEPS
    assert len(cloud.starts(0)) == len(cloud.starts(1)) == 5
    assert "failure 1 of 3 without a new checkpoint: host-0 ended with status 124: ending with 124" in out
    assert "failure 2 of 3 without a new checkpoint: host-0 ended with status 135" in out  # host-1 with 124
    assert "failure 3 of 3" not in out


@pytest.mark.slow
def test_babysit_resumes_after_a_signal_to_the_run(cloud) -> None:
    cloud.env["STANDIN_SECONDS"] = "0.05"
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 3)
    cloud.kill(0, signal.SIGTERM)
    cloud.kill(1, signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "failure" not in out
    assert cloud.steps() == STEPS
    assert len(cloud.starts()) == 2


@pytest.mark.slow
def test_babysit_gives_up_after_failures_without_progress(cloud) -> None:
    cloud.script_of(*[(1, 5)] * 9)
    out = cloud.call("babysit", *FAST, status=1)
    assert len(cloud.starts()) == 3
    assert "3 consecutive failures without a new checkpoint" in out
    assert "The slice still costs money" in out
    assert out.count("step 4/40") >= 1  # the end of the logs


def test_babysit_stops_at_a_mistake_of_the_user(cloud) -> None:
    cloud.script_of((2, None))
    out = cloud.call("babysit", *FAST, status=2)
    assert len(cloud.starts()) == 1
    assert "no such directory; prepare one" in out
    assert "refused the run" in out


@pytest.mark.slow
def test_babysit_starts_again_after_the_user_has_fixed_the_cause(cloud) -> None:
    cloud.script_of((2, None))
    cloud.call("babysit", *FAST, status=2)
    cloud.call("babysit", *FAST)  # nothing remains in the script, so that the run is not refused
    assert cloud.steps() == STEPS
    assert len(cloud.starts()) == 2


@pytest.mark.parametrize(
    "change",
    [
        "workdir",
        pytest.param("recipe", marks=pytest.mark.slow),
        pytest.param("argument", marks=pytest.mark.slow),
    ],
)
def test_the_end_of_another_run_is_not_the_end_of_this_run(cloud, change: str) -> None:
    cloud.call("babysit", *FAST)
    more = ["--", "--config.train.steps=80"] if change == "argument" else []
    if change == "workdir":
        cloud.settings["WORKDIR"] += "2"
    if change == "recipe":
        (cloud.place / "recipe.py").write_text("# another recipe\n")
    cloud.call("babysit", *FAST, "--delete_when_done", *more)
    assert len(cloud.starts()) == 2


@pytest.mark.parametrize(
    "num_refusals",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(3, marks=pytest.mark.slow),
        -1,
    ],
)
def test_babysit_repeats_the_request_to_delete_the_slice(cloud, num_refusals: int) -> None:
    (cloud.cloud / "undeletable").write_text(f"{num_refusals}")
    out = cloud.call("babysit", *FAST, "--delete_when_done", status=1 if num_refusals == 3 else 0)
    assert cloud.steps() == STEPS
    assert cloud.verbs().count("create") == 1
    assert cloud.verbs().count("delete") == (1 if num_refusals == -1 else 3)
    assert ("The slice still costs money" in out) == (cloud.cloud / NAME).exists() == (num_refusals == 3)


def test_babysit_without_quota_or_with_a_failed_request(cloud) -> None:
    (cloud.cloud / "refuse").touch()
    out = cloud.call("babysit", *FAST, status=1)
    assert out.count("Quota limit") == 3
    assert "the slice could not be created" in out
    assert "There is no slice: fix the cause and run babysit again" in out
    assert "costs money" not in out
    (cloud.cloud / "refuse").unlink()
    cloud.call("create")
    (cloud.cloud / NAME / "state").write_text("FAILED")
    process = cloud.start("babysit", *FAST)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "failure 1 of 3 without a new checkpoint: the queued resource is in state FAILED" in out


@pytest.mark.slow
def test_babysit_waits_while_gcloud_fails(cloud) -> None:
    cloud.env["STANDIN_SECONDS"] = "0.05"
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 3)
    (cloud.cloud / "offline").touch()
    seen = len(cloud.calls())
    wait_for(lambda: len(cloud.calls()) > seen + 3)
    (cloud.cloud / "offline").unlink()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "waiting: the slice is UNKNOWN" in out
    assert len(cloud.starts()) == 1
    assert cloud.verbs().count("create") == 1


@pytest.mark.slow
def test_babysit_with_a_host_that_lost_its_run(cloud) -> None:
    """Killed on every host without a word, as a restart of the machines leaves it."""
    cloud.env["STANDIN_SECONDS"] = "0.05"
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 12)
    cloud.kill(0)
    cloud.kill(1)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "lost its run" in out
    assert cloud.steps() == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["describe", "ssh"])
def test_babysit_outlives_a_question_that_hangs(cloud, verb) -> None:
    cloud.env["STANDIN_SECONDS"] = "0.2"
    process = cloud.start("babysit", *FAST, "--state_timeout", "3")
    wait_for(lambda: len(cloud.steps()) > 3)
    cloud.hang(verb)
    wait_for(cloud.hung)
    wait_for(lambda: not alive(cloud.hung()[0]))
    cloud.hang()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "tpu_pod.sh: no answer within 3 s: gcloud compute tpus " in out
    assert not any(map(alive, cloud.hung()))
    assert len(cloud.starts()) == 1


@pytest.mark.slow
def test_babysit_outlives_a_setup_that_hangs(cloud) -> None:
    cloud.hang("scp")
    process = cloud.start("babysit", *FAST, "--timeout", "5")
    wait_for(cloud.hung)
    cloud.hang()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "tpu_pod.sh: no answer within 5 s: gcloud compute tpus tpu-vm scp " in out
    assert "failure 1 of 3 without a new checkpoint: setup failed" in out
    assert not any(map(alive, cloud.hung()))
    assert cloud.steps() == STEPS


@pytest.mark.slow
def test_babysit_bears_hosts_that_do_not_answer_now_and_then(cloud) -> None:
    """More often than --max_failures, before the first checkpoint."""
    cloud.env["STANDIN_SECONDS"] = "60"
    process = cloud.start("babysit", *FAST, "--max_failures", "2")
    wait_for((cloud.script / "argv.jsonl").exists)
    silent = cloud.cloud / "silent"
    for change in [silent.touch, silent.unlink] * 3:
        change()
        polls = cloud.verbs().count("ssh")
        wait_for(lambda polls=polls: cloud.verbs().count("ssh") > polls + 1)  # one began after the change and ended
    assert process.poll() is None
    out = cloud.interrupt(process)
    assert out.count("the hosts do not answer") == 3
    assert out.count("running on 2 of 2 hosts") >= 3
    assert "failure" not in out
    assert len(cloud.starts()) == 1


@pytest.mark.slow
def test_babysit_reads_the_hosts_that_answer_beside_a_silent_host(cloud) -> None:
    """The run has ended on both: it is finished, whatever the silent host would say."""
    cloud.env["STANDIN_SECONDS"] = "0.2"
    process = cloud.start("babysit", *FAST)
    wait_for(lambda: len(cloud.steps()) > 3)
    (cloud.cloud / "silent").write_text("1")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "running on 1 of 1 hosts that answer" in out
    assert f"finished: step {STEPS[-1]} is saved" in out
    assert "do not answer" not in out


@pytest.mark.slow
def test_babysit_warns_where_hosts_do_not_answer_and_replaces_them_where_they_are_gone(cloud) -> None:
    cloud.env["STANDIN_SECONDS"] = "0.2"
    process = cloud.start("babysit", *FAST, "--max_unanswered", "1")
    wait_for(lambda: len(cloud.steps()) > 12)
    (cloud.cloud / "silent").touch()
    warning = "the slice is READY, but its hosts have not answered for "
    for _ in range(2):  # it is repeated
        assert any(warning in line for line in iter(process.stdout.readline, ""))
    cloud.preempt()
    wait_for(lambda: cloud.verbs().count("create") == 2)
    (cloud.cloud / "silent").unlink()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "the slice is gone" in out
    assert "failure" not in out
    assert cloud.steps() == STEPS
