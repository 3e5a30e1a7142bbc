"""Verbs of launch/tpu_pod.sh against a stand-in gcloud, whose hosts run as local processes."""

import signal
import subprocess

import pytest

from tests.launch.cloud import NAME, TPU_POD, URL, Cloud, alive, wait_for

STEPS = list(range(1, 41))
FAST = ("--poll", "0.1")
HOSTILE = [
    "a b",
    '--config.name=it\'s "quoted"',
    "; touch canary",
    "$(touch canary)",
    "`touch canary`",
    "&& touch canary #",
    "two\nlines; touch canary\n",
    "\\' ; touch canary ; '",
    "*",
    "",
    "~",
    "ümläut \t end",
]


def no_canary(cloud: Cloud) -> bool:
    return not list(cloud.place.rglob("canary*"))


def up(cloud: Cloud, *more: str) -> None:
    """A new slice, when it has been through the queue."""
    cloud.call("create")
    wait_for(lambda: "bare" in cloud.call("status", *more))


def test_from_create_to_delete(cloud) -> None:
    cloud.use_bucket()
    cloud.env["STANDIN_SECONDS"] = "0.7"
    assert cloud.call("create") == ""
    (create,) = cloud.calls()
    assert create[:5] == ["compute", "tpus", "queued-resources", "create", NAME]
    for flag in (
        "--node-id=pod",
        "--accelerator-type=v5litepod-16",
        "--runtime-version=v2-alpha-tpuv5-lite",
        "--spot",
        "--service-account=trainer@my-project.iam.gserviceaccount.com",
        "--project=my-project",
        "--zone=us-west4-a",
    ):
        assert flag in create
    assert "waiting_for_resources" in cloud.call("status")
    wait_for(lambda: "bare" in cloud.call("status"))
    cloud.call("run", status=1)  # the directory for the recipe does not exist yet
    cloud.call("setup")
    assert (
        "pip install --quiet --python venv/bin/python -- bert-jax[tpu] @ git+https"
        in (cloud.home(1).parent / "uv.log").read_text()
    )
    lines = [line for line in cloud.call("run").splitlines() if "Attempting to connect" not in line]
    assert sorted(lines) == ["host-0: started", "host-1: started"]
    wait_for(lambda: len(cloud.steps()) > 2)
    status = cloud.call("status")
    assert "host-0: running" in status
    assert "| step " in status
    assert "still active" in cloud.call("run", status=3)
    follower = cloud.start("logs", "--worker", "0")
    assert any("step 3/40" in line for line in iter(follower.stdout.readline, ""))
    cloud.interrupt(follower)
    assert "host-1: saving and stopping" in cloud.call("stop")
    wait_for(lambda: "running" not in cloud.call("status"))
    assert "host-1: 75, step" in cloud.call("status")
    assert "nothing is running here" in cloud.call("stop")
    assert (cloud.home(1) / "status").read_text() == "75\n"
    cloud.env["STANDIN_SECONDS"] = "0.01"
    cloud.call("run")
    wait_for(lambda: "running" not in cloud.call("status"))
    assert "host-0: 0, step 40 of 40 saved" in cloud.call("status")
    assert cloud.steps() == STEPS
    expected = ["pretrain", "--workdir", URL, "--config", "recipe.py"]
    assert cloud.starts(0) == cloud.starts(1) == [expected, expected]
    first, second = [(cloud.home(host) / "token").read_text() for host in (0, 1)]
    assert first == second
    assert len(first) == 64
    assert (cloud.home(0) / "token").stat().st_mode & 0o777 == 0o600
    log = (cloud.home(0) / "log").read_text()
    cloud.call("delete")
    assert "absent" in cloud.call("status")
    kept = sorted((cloud.workdir / "logs").glob("*_host-0.log"))
    assert len(kept) == 2  # starts
    assert "".join(one.read_text() for one in kept) == log


def test_arguments_arrive_byte_for_byte(cloud) -> None:
    cloud.workdir = cloud.workdir.with_name("a 'run' of \"mine\"; touch canary; $(touch canary) \n& more")
    cloud.settings["CORPUS"] = "gs://a corpus/$(touch canary)"
    cloud.settings["OVERRIDE"] = "--config.note=$(touch canary) it's"
    del cloud.settings["WORKDIR"]  # a line of the file cannot hold a newline
    place = ("--workdir", str(cloud.workdir))
    cloud.workdir.mkdir()
    (cloud.workdir / "requirements.lock").write_text("jax==0.10.2\n")
    up(cloud, *place)
    cloud.call("setup", *place)
    assert (cloud.home(1) / "constraint.txt").read_text() == "jax==0.10.2\n"
    cloud.call("run", *place, "--", *HOSTILE)
    wait_for(lambda: "running" not in cloud.call("status", *place))
    expected = ["pretrain", "--workdir", str(cloud.workdir), "--config", "recipe.py"]
    expected += ["--config.data.corpus=gs://a corpus/$(touch canary)", "--config.note=$(touch canary) it's", *HOSTILE]
    assert cloud.starts(0) == [expected]
    assert cloud.starts(1) == [expected]
    assert "host-0: 0, step 40 of 40 saved" in cloud.call("status", *place)
    assert cloud.steps() == STEPS
    assert no_canary(cloud)


@pytest.mark.parametrize("verb", ["create", "setup", "run", "status", "delete"])
def test_dry_run_prints_the_commands_and_runs_nothing(cloud, verb) -> None:
    more = ["--dry_run", "--", *HOSTILE] if verb == "run" else ["--dry_run"]
    if verb != "create":
        up(cloud)
    if verb == "run":
        cloud.call("setup")
    before = cloud.calls()
    printed = cloud.call(verb, *more)
    assert cloud.calls() == before
    assert not (cloud.script / "argv.jsonl").exists()
    subprocess.run(["bash", "-c", printed], env=cloud.env, cwd=cloud.place, check=True)
    from_print = cloud.calls()[len(before) :]
    if verb == "run":
        wait_for(lambda: "running" not in cloud.call("status"))
    if verb == "create":
        cloud.call("delete")
    elif verb == "delete":
        up(cloud)
    now = len(cloud.calls())
    cloud.call(verb, *(word for word in more if word != "--dry_run"))
    assert cloud.calls()[now:] == from_print
    assert from_print
    assert no_canary(cloud)


def test_dry_run_of_babysit(cloud) -> None:
    printed = cloud.call("babysit", "--dry_run", "--delete_when_done")
    commands = [line.split()[4] for line in printed.splitlines() if line.startswith("gcloud compute tpus ")]
    looks = ["describe", "describe"]
    assert commands == ["create", *looks, "ssh", "scp", "ssh", "scp", "scp", "ssh", *looks, "ssh", "delete", "delete"]
    assert cloud.calls() == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("NAME", "pod; touch canary"),
        ("NAME", "$(touch canary)"),
        ("NAME", "--flag"),
        ("NAME", "it's"),
        ("NAME", "a" * 41),
        ("NAME", '"pod"'),
        ("PROJECT", "p --impersonate-service-account=me"),
        ("ZONE", "us-west4"),
        ("ACCELERATOR_TYPE", "v5litepod"),
        ("SLICES", "0"),
        ("SLICES", "two"),
        ("RUNTIME_VERSION", "a b"),
        ("PROVISIONING", "cheap"),
        ("SERVICE_ACCOUNT", "me"),
        ("WORKDIR", "relative"),
        ("WORKDIR", "gs://bucket"),
        ("WORKDIR", "gs://bucket/"),
        ("WORKDIR", "gs:///run"),
        ("WORKDIR", "gs:/bucket/run"),
        ("WORKDIR", "s3://bucket/run"),
        ("CORPUS", "s3://bucket/corpus"),
    ],
)
def test_settings_that_cannot_be(cloud, key, value) -> None:
    cloud.settings[key] = value
    out = cloud.call("babysit", status=2)
    assert out.startswith(f"tpu_pod.sh: {key}='{value}' must look like ")
    assert len(out.splitlines()) == 1
    if key in ("WORKDIR", "CORPUS"):
        assert out.endswith(" must look like gs://BUCKET/NAME or an absolute path\n")
    assert cloud.calls() == []
    assert no_canary(cloud)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["launch"], "'launch' is not a verb"),
        (["--env", "pod.env", "status"], "'--env' comes after the verb"),
        (["create", "--zones", "x"], "--zones is not an option"),
        (["create", "--project", "my-project", "here"], "'here' is not an option"),
        (["create", "--project", "my-project"], "create needs ZONE"),
        (["create", "--zone"], "--zone needs a value"),
        (["babysit", "--poll", "soon"], "--poll takes seconds"),
        (["babysit", "--state_timeout", "2m"], "--state_timeout takes seconds"),
        (["create", "--env", "nowhere"], "nowhere: no such file"),
        (["create", "--a[$(touch canary)]", "x"], "is not an option"),
    ],
)
def test_mistakes_on_the_command_line(cloud, argv, says) -> None:
    done = subprocess.run([TPU_POD, *argv], env=cloud.env, cwd=cloud.place, capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert cloud.calls() == []
    assert no_canary(cloud)


def test_the_env_file_is_read_not_run(cloud) -> None:
    cloud.settings["ZONES"] = "x"
    assert "ZONES is not a setting" in cloud.call("create", status=2)
    del cloud.settings["ZONES"]
    cloud.settings["PROJECT"] = "my-project\n$(touch canary)"
    assert "is not SETTING=VALUE" in cloud.call("create", status=2)
    cloud.settings["PROJECT"] = "my-project\nNAME=$(touch canary)"
    assert "NAME is set twice" in cloud.call("create", status=2)
    assert no_canary(cloud)
    cloud.settings["PROJECT"] = "another"
    assert "--project=given" in cloud.call("create", "--dry_run", "--project", "given")


@pytest.mark.parametrize(
    ("accelerator", "runtime"),
    [
        ("v4-32", "tpu-ubuntu2204-base"),
        ("v5litepod-256", "v2-alpha-tpuv5-lite"),
        ("v5p-128", "v2-alpha-tpuv5"),
        ("v6e-64", "v2-alpha-tpuv6e"),
    ],
)
def test_runtime_versions_and_provisioning(cloud, accelerator, runtime) -> None:
    for provisioning, flag in [("spot", " --spot"), ("reserved", " --reserved"), ("on-demand", "")]:
        more = ["--accelerator_type", accelerator, "--provisioning", provisioning, "--network=n", "--subnetwork=s"]
        printed = cloud.call("create", "--dry_run", *more)
        assert f"--runtime-version={runtime} " in printed
        assert f"{flag} --network=n --subnetwork=s" in printed
        assert ("--spot" in printed, "--reserved" in printed) == (provisioning == "spot", provisioning == "reserved")
    assert "--zone=us-south1-ai1b" in cloud.call("create", "--dry_run", "--zone", "us-south1-ai1b")  # Google's AI zones
    assert "--runtime-version=mine " in cloud.call("create", "--dry_run", "--runtime_version", "mine")
    unknown = cloud.call("create", "--dry_run", "--accelerator_type", "v9-8", status=2)
    assert "pass --runtime_version" in unknown
    other_name = cloud.call("create", "--dry_run", "--accelerator_type", "v5e-64", status=2)
    assert "set ACCELERATOR_TYPE" in other_name
    assert "v5litepod-64" in other_name


def test_flex_start(cloud) -> None:
    cloud.settings |= {"PROVISIONING": "flex-start", "MAX_RUN_DURATION": "7d"}
    printed = cloud.call("create", "--dry_run").split()
    assert printed[:6] == ["gcloud", "alpha", "compute", "tpus", "queued-resources", "create"]
    assert printed.count("--provisioning-model=flex-start") == printed.count("--max-run-duration=7d") == 1
    assert not {"--spot", "--reserved"} & set(printed)
    cloud.call("create")
    assert "waiting_for_resources" in cloud.call("status")
    assert [call[0] for call in cloud.calls()] == ["alpha", "compute"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"PROVISIONING": "flex-start"}, "PROVISIONING=flex-start needs MAX_RUN_DURATION"),
        ({"PROVISIONING": "flex-start", "MAX_RUN_DURATION": "169h"}, "MAX_RUN_DURATION=169h: a flex-start slice lives"),
        ({"PROVISIONING": "flex-start", "MAX_RUN_DURATION": "soon"}, "MAX_RUN_DURATION='soon' must look like"),
        (
            {"PROVISIONING": "flex-start", "MAX_RUN_DURATION": "1h", "ACCELERATOR_TYPE": "v4-32"},
            "PROVISIONING=flex-start does not exist for v4-32",
        ),
        ({"PROVISIONING": "spot", "MAX_RUN_DURATION": "1h"}, "not for spot: leave it out"),
        ({"PROVISIONING": "spot --reserved"}, "PROVISIONING='spot --reserved' must look like"),
    ],
)
def test_kinds_of_provisioning_that_do_not_exist(cloud, changed, says) -> None:
    cloud.settings |= changed
    out = cloud.call("babysit", status=2)
    assert says in out
    assert len(out.splitlines()) == 1
    assert cloud.calls() == []


def test_flags_of_create(cloud) -> None:
    cloud.settings["PROVISIONING"] = "spot\nCREATE_FLAG=--labels=a=b; touch canary\nCREATE_FLAG=--tags=x"
    cloud.call("create")
    assert cloud.calls()[0][-6:-3] == ["--spot", "--labels=a=b; touch canary", "--tags=x"]
    cloud.settings["PROVISIONING"] = "spot\nCREATE_FLAG=tags=x"
    assert "'CREATE_FLAG=tags=x' is not CREATE_FLAG=--NAME=VALUE" in cloud.call("create", status=2)
    assert no_canary(cloud)


def test_a_wheel(cloud) -> None:
    wheel = cloud.place / "bert_jax-0.1.0-py3-none-any.whl"
    cloud.settings["PACKAGE"] = str(wheel)
    up(cloud)
    assert "no such file" in cloud.call("setup", status=2)
    wheel.write_text("a wheel")
    cloud.call("setup")
    cloud.call("run")
    wait_for(lambda: "running" not in cloud.call("status"))
    for host in range(2):
        assert (cloud.home(host) / wheel.name).read_text() == "a wheel"
        assert f"-- ./{wheel.name}[tpu,storage]" in (cloud.home(host).parent / "uv.log").read_text()


def test_a_package_that_is_missing_is_refused_before_a_slice_costs_money(cloud) -> None:
    cloud.settings["PACKAGE"] = "dist/bert_jax.whl"
    assert "PACKAGE: dist/bert_jax.whl: no such file; build it with" in cloud.call("babysit", *FAST, status=2)
    assert cloud.calls() == []


def test_logs_of_several_slices_that_are_gone(cloud) -> None:
    cloud.settings["SLICES"] = "2"
    logs = cloud.workdir / "logs"
    logs.mkdir(parents=True)
    for number, name in enumerate(("slice-0-t1v-n-abc", "slice-1-t1v-n-def", "slice-10-t1v-n-f1a", "t1v-n-f00")):
        (logs / f"2026112{number}-100000.000_{name}-w-0.log").write_text(f"of {name}\n")
    for number, name in enumerate(("slice-0-t1v-n-abc", "slice-1-t1v-n-def")):
        about, line = cloud.call("logs", "--slice", str(number), "--worker", "0").splitlines()
        assert about.endswith(f"_{name}-w-0.log:")
        assert line == f"of {name}"
    assert "no log of host 1 of slice 0 in" in cloud.call("logs", "--worker", "1", status=2)


def test_logs_of_a_slice_that_is_gone(cloud) -> None:
    assert f"in {cloud.workdir}/logs, which is not on this machine" in cloud.call("logs", status=2)
    logs = cloud.workdir / "logs"
    logs.mkdir(parents=True)
    assert f"no log of host 2 in {cloud.workdir}/logs" in cloud.call("logs", "--worker", "2", status=2)
    (logs / "20261123-100000.000_t1v-n-f00-w-2.log").write_text("old\n")
    (logs / "20261124-100000.000_t1v-n-abc-w-2.log").write_text("".join(f"line {i}\n" for i in range(150)))
    (logs / "20261125-100000.000_t1v-n-abc-w-12.log").write_text("of another host\n")
    (logs / ".20261126-100000.000_t1v-n-abc-w-2.log.partial").write_text("half")
    about, *lines = cloud.call("logs", "--worker", "2").splitlines()
    assert about.endswith(f"the slice is absent; the end of {logs}/20261124-100000.000_t1v-n-abc-w-2.log:")
    assert lines == [f"line {i}" for i in range(50, 150)]

    cloud.settings["WORKDIR"] = "gs://my-bucket/runs/a 'run'/"
    (cloud.buckets / "my-bucket" / "runs").mkdir(parents=True)
    cloud.workdir.rename(cloud.buckets / "my-bucket" / "runs" / "a 'run'")
    about, *lines = cloud.call("logs", "--worker", "2").splitlines()
    assert about.endswith("gs://my-bucket/runs/a 'run'/logs/20261124-100000.000_t1v-n-abc-w-2.log:")
    assert lines[-2:] == ["line 149", ""]
    assert cloud.calls()[-2:] == [
        ["storage", "ls", "gs://my-bucket/runs/a 'run'/logs/"],
        ["storage", "cat", "gs://my-bucket/runs/a 'run'/logs/20261124-100000.000_t1v-n-abc-w-2.log"],
    ]


@pytest.mark.parametrize("verb", ["create", "describe", "ssh", "scp"])
def test_ctrl_c_ends_a_call_that_hangs(cloud, verb) -> None:
    cloud.hang(verb)
    process = cloud.start("babysit", *FAST)
    wait_for(cloud.hung)
    out = cloud.interrupt(process)
    assert process.returncode == -signal.SIGINT, out
    wait_for(lambda: not any(map(alive, cloud.hung())))
    assert cloud.verbs().count(verb) <= 1  # none after it


@pytest.mark.slow
def test_following_a_log_has_no_limit(cloud) -> None:
    cloud.env["STANDIN_SECONDS"] = "0.1"
    up(cloud)
    cloud.call("setup")
    cloud.call("run")
    follower = cloud.start("logs", "--timeout", "1")
    assert any("step 40/40" in line for line in iter(follower.stdout.readline, ""))
    cloud.interrupt(follower)


def test_a_lost_connection_ends(cloud) -> None:
    """By flags of gcloud 528."""
    printed = cloud.call("babysit", "--dry_run")
    for verb in ("ssh", "scp"):
        calls = [line.split() for line in printed.splitlines() if f" tpu-vm {verb} " in line]
        assert calls
        for option in ("ConnectTimeout=30", "ServerAliveInterval=15", "ServerAliveCountMax=4"):
            assert all(f"--{verb}-flag=-o{option}" in call for call in calls)
