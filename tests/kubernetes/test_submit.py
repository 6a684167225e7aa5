"""examples/kubernetes: what spark-submit really sends to an API server, and files that Kubernetes' schemas allow."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import commands
from tests.kubernetes.api_server import Document, api_server
from topicledger import __version__
from topicledger.cli.provisioning import provision

EXAMPLES = commands.REPOSITORY / "examples"
PYTHON = commands.REPOSITORY / "build" / "ci" / "bin" / "python"
IMAGE = "registry.example.com/topicledger:0.1.0"
VALIDATE = """
import sys
import kubernetes_validate
import yaml
for document in yaml.safe_load_all(sys.stdin):
    kubernetes_validate.validate(document, sys.argv[1], strict=True)
"""
RUN = ["--config=/etc/topicledger/topicledger.toml", "--run-id=nightly", "--wait"]


def check(documents: Iterable[Document], version: str) -> subprocess.CompletedProcess[str]:
    """Whether that version of Kubernetes knows every field of these objects."""
    text = yaml.safe_dump_all(documents)
    return subprocess.run([PYTHON, "-c", VALIDATE, version], input=text, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=["1.33"])
def kubernetes(request: pytest.FixtureRequest) -> str:
    """A version whose schemas are there."""
    if not PYTHON.exists():
        assert os.environ.get("TOPICLEDGER_CI_EXAMPLES") != "required", "make setup-ci installs what checks them"
        pytest.skip("make setup-ci installs what checks them")
    return str(request.param)


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def submit(exit_code: int | None) -> tuple[subprocess.CompletedProcess[str], dict[str, list[Document]]]:
    """Submits a run to a server that says how its container ended; what the server was sent, by kind."""
    with api_server(exit_code) as server:
        done = commands.run(
            [str(EXAMPLES / "kubernetes" / "submit.sh"), "jobs/provision.py", *RUN],
            KUBERNETES_MASTER=server.address,
            IMAGE=IMAGE,
            TOPICLEDGER_SUBMIT_ARGS="",
        )
        kinds = {kind for kind, _ in server.objects}
        return done, {kind: server.of_kind(kind) for kind in kinds}


@pytest.mark.thorough
def test_the_files_are_what_kubernetes_schemas_allow(kubernetes: str) -> None:
    paths = [*(EXAMPLES / "kubernetes").glob("*.yaml"), EXAMPLES / "serve" / "deployment.yaml"]
    assert len(paths) == 5
    for path in paths:
        checked = check(documents(path), kubernetes)
        assert checked.returncode == 0, f"{path.name}: {checked.stderr}"
    # The check can fail.
    (job,) = documents(EXAMPLES / "kubernetes" / "cronjob.yaml")
    job["spec"]["concurrency"] = job["spec"].pop("concurrencyPolicy")
    assert "concurrency" in check([job], kubernetes).stderr


@pytest.mark.thorough
def test_spark_sends_a_driver_of_our_template_and_its_exit_code_comes_back(kubernetes: str) -> None:
    done, sent = submit(4)
    assert done.returncode == 4, done.stderr
    checked = check([each for kind in sent.values() for each in kind], kubernetes)
    assert checked.returncode == 0, checked.stderr
    # The submitting account needs permission to create these.
    assert set(sent) == {"Pod", "Service", "NetworkPolicy", "ConfigMap"}
    (pod,) = sent["Pod"]
    assert pod["spec"]["restartPolicy"] == "Never"
    (container,) = pod["spec"]["containers"]
    (template,) = documents(EXAMPLES / "kubernetes" / "driver.yaml")
    (ours,) = template["spec"]["containers"]
    assert container["image"] == IMAGE
    assert container["args"][-len(RUN) - 1 :] == ["local:///opt/topicledger/jobs/provision.py", *RUN]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["KAFKA_PASSWORD"] == ours["env"][0]
    assert environment["PYSPARK_PYTHON"]["value"] == "/opt/topicledger/.venv/bin/python"
    assert environment["PYSPARK_DRIVER_PYTHON"]["value"] == "/opt/topicledger/.venv/bin/python"
    for mount in ours["volumeMounts"]:
        assert mount in container["volumeMounts"]
    assert pod["spec"]["serviceAccountName"] == "topicledger"
    assert pod["spec"]["securityContext"] == template["spec"]["securityContext"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 120
    maps = {name: text for each in sent["ConfigMap"] for name, text in each["data"].items()}
    properties = dict(line.split("=", 1) for line in maps["spark.properties"].splitlines() if not line.startswith("#"))
    assert properties["spark.submit.pyFiles"] == r"local\:///opt/topicledger/dist/topicledger.zip"
    jars = properties["spark.jars"].split(",")
    assert len(jars) >= 5
    assert all(jar.startswith(r"local\:///opt/topicledger/build/jars/") for jar in jars)
    assert maps["podspec-configmap-key"] == (EXAMPLES / "kubernetes" / "executor.yaml").read_text()
    # Nothing of this machine's but where the driver's template was read.
    here = str(commands.REPOSITORY)
    assert [line for line in properties if here in properties[line]] == ["spark.kubernetes.driver.podTemplateFile"]
    assert here not in str(pod)


@pytest.mark.thorough
@pytest.mark.parametrize(("ended", "code"), [(0, 0), (137, 1), (None, 1)], ids=["well", "killed", "lost"])
def test_a_driver_that_ended_well_is_0_one_that_was_killed_or_lost_1(ended: int | None, code: int) -> None:
    """A lost one was deleted with its machine: its requests may have been sent, so a scheduler starts it again."""
    assert submit(ended)[0].returncode == code


def test_the_cron_job_uses_valid_options_and_retries_only_exit_code_1() -> None:
    (job,) = documents(EXAMPLES / "kubernetes" / "cronjob.yaml")
    spec = job["spec"]["jobTemplate"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    file, *arguments = container["args"]
    assert (commands.REPOSITORY / file).is_file()
    with provision.make_context("provision", arguments) as context:
        assert context.params["run_id"] == "$(JOB_NAME)"
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2, 3, 4, 5])
    assert rule["onExitCodes"]["containerName"] == container["name"]
    # Kubernetes takes such rules with this policy only.
    assert pod["restartPolicy"] == "Never"
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (
            ["driver", "--class", "C", "a b"],
            {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"},
            [
                *("spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.1"),
                *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.1", "--class", "C", "a b"),
            ],
        ),
        (
            ["executor"],
            {
                "SPARK_JAVA_OPT_0": "-Da=b c",
                "SPARK_JAVA_OPT_1": "-De",
                "SPARK_EXECUTOR_MEMORY": "512m",
                "SPARK_DRIVER_URL": "spark://d",
                "SPARK_EXECUTOR_ID": "1",
                "SPARK_EXECUTOR_CORES": "2",
                "SPARK_APPLICATION_ID": "app",
                "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
                "SPARK_RESOURCE_PROFILE_ID": "0",
                "SPARK_EXECUTOR_POD_NAME": "pod",
                "SPARK_CLASSPATH": "x.jar",
                "SPARK_DIST_CLASSPATH": "s3/*",
            },
            [
                *("java", "-Da=b c", "-De", "-Xms512m", "-Xmx512m", "-cp"),
                f"/opt/spark/conf:x.jar:HOME/jars/*:s3/*:{commands.REPOSITORY}",
                "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
                *("--driver-url", "spark://d", "--executor-id", "1", "--cores", "2", "--app-id", "app"),
                *("--hostname", "10.0.0.2", "--resourceProfileId", "0", "--podName", "pod"),
            ],
        ),
        (["cat", "a b"], {}, ["cat", "a b"]),
    ],
)
def test_the_entry_point_runs_what_spark_asks_for(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], expected: list[str]
) -> None:
    for name in ("spark-submit", "java", "cat"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = commands.run(
        [str(EXAMPLES / "kubernetes" / "entrypoint.sh"), *arguments], SPARK_HOME=str(tmp_path), PATH=path, **environment
    )
    assert done.stdout.replace(str(tmp_path), "HOME").splitlines() == expected, done.stderr


def test_the_image_has_what_its_files_name() -> None:
    text = (EXAMPLES / "kubernetes" / "Containerfile").read_text()
    lines = [line.split() for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    copied = [path for word, *paths in lines if word == "COPY" and not paths[0].startswith("--") for path in paths[:-1]]
    assert copied
    for path in copied:
        assert (commands.REPOSITORY / path).exists(), path
    assert {line[0] for line in lines} <= {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "ENTRYPOINT"}


def test_the_image_can_keep_its_tables_on_s3() -> None:
    """Its Pods have no volume for them."""
    image = (EXAMPLES / "kubernetes" / "Containerfile").read_text()
    assert " && .venv/bin/python scripts/fetch_jars.py s3 " in image
    assert " SPARK_DIST_CLASSPATH=/opt/topicledger/build/jars/s3/* " in image
    (job,) = documents(EXAMPLES / "kubernetes" / "cronjob.yaml")
    (deployment,) = documents(EXAMPLES / "serve" / "deployment.yaml")
    pods = [job["spec"]["jobTemplate"]["spec"]["template"], deployment["spec"]["template"]]
    pods += [pod for name in ("driver", "executor") for pod in documents(EXAMPLES / "kubernetes" / f"{name}.yaml")]
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "topicledger-s3", "optional": True}}]


def test_make_image_uses_the_builder_that_is_there(tmp_path: Path) -> None:
    for name in ("dirname", "sed"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    script = commands.REPOSITORY / "scripts" / "image.sh"

    def built(*arguments: str) -> subprocess.CompletedProcess[str]:
        return commands.run([str(shutil.which("bash")), str(script), *arguments], PATH=str(tmp_path))

    assert (built().returncode, built().stderr.count("\n")) == (1, 1)
    assert "no docker, podman or buildah works on this machine: install one" in built().stderr
    for name, information in {"docker": "exit 1  # no daemon", "podman": "exit 0"}.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" != info ] || {information}\nprintf "%s\\n" "$@"\n')
        program.chmod(0o755)
    options = ["build", "--file", "examples/kubernetes/Containerfile", "--tag"]
    assert built().stdout.splitlines() == [*options, f"topicledger:{__version__}", "."]
    assert built("other:1").stdout.splitlines() == [*options, "other:1", "."]
