"""spark-submit.sh: a job keeps its arguments, its streams, its exit code and its chance to end in good order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "spark-submit.sh"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory that is not the repository, with a blank in its name."""
    made = tmp_path / "some where"
    made.mkdir()
    return made


def job(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def environment(folder: Path, **more: str) -> dict[str, str]:
    return os.environ | {"TOPICLEDGER_LOG_DIR": str(folder / "logs")} | more


def submit(folder: Path, *arguments: str, script: Path = SCRIPT, **kwargs: str) -> subprocess.CompletedProcess[str]:
    environment_given = environment(folder, **kwargs)
    return subprocess.run(
        [script, *arguments], cwd=folder, env=environment_given, capture_output=True, text=True, timeout=120
    )


def test_a_job_keeps_arguments_streams_and_exit_code_and_spark_is_silent(folder: Path) -> None:
    text = """
        import sys
        import topicledger.schemas
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        spark.range(3).write.format("delta").save(sys.argv[1])
        def batches(them):
            import topicledger
            yield from them
        rows = spark.read.format("delta").load(sys.argv[1]).mapInArrow(batches, "id long").count()
        print(rows, sys.argv[2:], topicledger.__file__.partition("dist/")[2])
        print("said on stderr", file=sys.stderr)
        spark.stop()
        sys.exit(4)
    """
    done = submit(folder, job(folder, text), str(folder / "table"), "a  b", "", "$HOME", "'\"")
    assert done.returncode == 4, done.stderr
    arguments = ["a  b", "", "$HOME", "'\""]
    assert done.stdout == f"3 {arguments} topicledger.zip/topicledger/__init__.py\n"
    assert done.stderr == "said on stderr\n"


def test_output_to_a_file_goes_where_the_shell_left_off(folder: Path) -> None:
    script = job(folder, "import sys; print('out'); print('err', file=sys.stderr)")
    with (folder / "both").open("w") as both:
        # One shell, one open file: its place in it must be the same before and after.
        line = f"echo before; '{SCRIPT}' '{script}'; echo after"
        subprocess.run(["bash", "-c", line], stdout=both, stderr=both, env=environment(folder), check=True, timeout=120)
    assert sorted((folder / "both").read_text().split()) == ["after", "before", "err", "out"]
    assert (folder / "both").read_text().startswith("before\n")
    assert (folder / "both").read_text().endswith("after\n")


@pytest.mark.thorough
def test_streams_that_another_user_opened_reach_the_job(folder: Path) -> None:
    """As below `sudo -u`, or in a container that isn't root's: pipes that this process has, but can't open again."""
    script = job(folder, "import sys; print(sys.stdin.read()); print('said on stderr', file=sys.stderr); sys.exit(3)")
    # Root opens what it likes, unless it may not.
    root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    pipes = [os.pipe() for _ in range(3)]
    for _, end in pipes:
        os.fchmod(end, 0)
    (given, fill), (out, write_out), (err, write_err) = pipes
    os.write(fill, b"given")
    os.close(fill)
    command = [*root, SCRIPT, script, "-"]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), stdin=given, stdout=write_out, stderr=write_err, timeout=120
    )
    for end in (given, write_out, write_err):
        os.close(end)
    with os.fdopen(out) as output, os.fdopen(err) as errors:
        assert (done.returncode, output.read(), errors.read()) == (3, "given\n", "said on stderr\n")


@pytest.mark.thorough
def test_a_job_reads_standard_input_if_asked(folder: Path) -> None:
    text = job(folder, "import sys; print(sys.stdin.read().upper())")
    done = subprocess.run(
        [SCRIPT, text, "-"], input="typed", env=environment(folder), capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "TYPED\n"


@pytest.mark.thorough
def test_further_options_are_quoted_as_in_a_shell(folder: Path) -> None:
    text = """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        print(spark.sparkContext.appName)
    """
    done = submit(folder, job(folder, text), TOPICLEDGER_SUBMIT_ARGS="--name 'two  words'")
    assert done.stdout == "two  words\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_signal_reaches_the_job_while_spark_still_works(folder: Path, number: signal.Signals) -> None:
    """SIGTERM: finish the batch, append, release, exit 1."""
    text = """
        import signal, sys, threading
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        asked = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
        print("up", flush=True)
        asked.wait(60)
        print("still counts to", spark.range(7).count(), flush=True)
        sys.exit(1)
    """
    with subprocess.Popen(
        [SCRIPT, job(folder, text)], env=environment(folder), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        # As a terminal does it: to the whole process group.
        os.killpg(running.pid, number)
        begun = time.monotonic()
        assert running.stdout.read() == "still counts to 7\n"
        assert running.wait(timeout=30) == 1
        assert time.monotonic() - begun < 30


def test_errors_of_spark_submit_are_reported_without_a_stack_trace(folder: Path) -> None:
    done = submit(folder, job(folder, "print('never')"), SPARK_MASTER="nonsense")
    assert done.returncode != 0
    assert "Master must" in done.stderr
    assert "\tat " not in done.stderr


@pytest.mark.thorough
def test_verbose_puts_sparks_log_on_stderr(folder: Path) -> None:
    text = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate(); print('done')"
    done = submit(folder, job(folder, text), "--verbose")
    assert done.stdout == "done\n"
    assert "INFO SparkContext: Running Spark version" in done.stderr


def test_a_job_that_is_not_there_is_a_usage_error(folder: Path) -> None:
    done = submit(folder, "jobs/nothing.py")
    assert done.returncode == 2
    assert done.stderr == "spark-submit.sh: there is no job file jobs/nothing.py\n"


def test_a_driver_on_a_standalone_clusters_worker_is_a_usage_error_before_spark_starts(folder: Path) -> None:
    """Spark refuses it for Python with exit code 1, which would mean: start it again. No master is asked."""
    given = {"SPARK_MASTER": "spark://127.0.0.1:1", "TOPICLEDGER_SUBMIT_ARGS": "--deploy-mode cluster"}
    done = submit(folder, job(folder, "raise SystemExit(0)"), **given)
    assert (done.returncode, done.stdout) == (2, "")
    assert "standalone clusters run no Python in deploy mode cluster" in done.stderr


def test_options_without_their_last_quote_are_refused(folder: Path) -> None:
    """Otherwise the job would run without the options after it."""
    given = "--conf spark.a=b --conf 'spark.c=d --deploy-mode cluster"
    done = submit(folder, job(folder, "print('ran')"), TOPICLEDGER_SUBMIT_ARGS=given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "spark-submit.sh: TOPICLEDGER_SUBMIT_ARGS: No closing quotation\n"


@pytest.mark.thorough
def test_a_checkout_may_be_in_a_folder_with_a_blank(folder: Path) -> None:
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("spark-submit.sh", "conf", "lib", "scripts", "pyproject.toml"):
        path = SCRIPT.parent / name
        shutil.copytree(path, checkout / name) if path.is_dir() else shutil.copy(path, checkout / name)
    for name in ("build", ".venv"):
        (checkout / name).symlink_to(SCRIPT.parent / name)
    text = """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        print(spark.range(3).count(), spark.conf.get("spark.mine"))
        spark.stop()
    """
    more = {"TOPICLEDGER_SUBMIT_ARGS": "--conf 'spark.mine=a \"b\\c'"}
    done = submit(folder, job(folder, text), script=checkout / SCRIPT.name, **more)
    assert (done.returncode, done.stdout, done.stderr) == (0, '3 a "b\\c\n', "")
