"""A real YARN: a ResourceManager and a NodeManager, processes of the test's own, with files on local disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from tests import commands
from tests.processes import command_line, family
from tests.standalone import free_port
from tests.waiting import until

JARS = commands.REPOSITORY / "build" / "jars" / "yarn"
SPARK_HOME = Path(pyspark.__file__).parent
_LOG4J = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """A YARN that is up."""

    folder: Path
    configuration: Path
    """Hadoop's configuration: what HADOOP_CONF_DIR names."""

    node: int
    """The NodeManager's process: containers are below it."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment for submitting a job there."""
        # Spark's jars from where they are; otherwise each submission would copy 500 MB.
        options = [
            f"--conf spark.yarn.jars=local:{SPARK_HOME}/jars/*",
            f"--conf spark.yarn.stagingDir=file:{self.folder}/staging",
            "--conf spark.executor.instances=2 --conf spark.executor.memory=512m --conf spark.driver.memory=1g",
            # How often spark-submit asks how the application is: by default once a second.
            "--conf spark.yarn.report.interval=250",
            f'--conf "spark.driver.defaultJavaOptions={commands.QUICK_JAVA}"',
        ]
        return {
            "SPARK_MASTER": "yarn",
            "HADOOP_CONF_DIR": str(self.configuration),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TOPICLEDGER_SUBMIT_ARGS": " ".join(options),
        }

    def containers(self, application: str) -> list[Path]:
        """The folders of its containers' logs, the application master's first."""
        return sorted((self.folder / "logs" / application).glob("container_*"))

    def log(self, application: str) -> str:
        """What `yarn logs` prints of an application; nothing before the node has gathered it, after the end."""
        return self._hadoop("LogsCLI", "-applicationId", application).stdout

    def kill(self, application: str) -> None:
        """`yarn application -kill`."""
        self._hadoop("ApplicationCLI", "application", "-kill", application).check_returncode()

    def driver(self, application: str, attempt: int) -> int | None:
        """Return the Java process of an attempt's driver; None if there is none."""
        container = f"{application.replace('application', 'container')}_{attempt:02}_000001"
        for pid in family(self.node):
            words = command_line(pid).split()
            if words and words[0].endswith("/java") and any(container in word for word in words):
                return pid
        return None

    def _hadoop(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*_java(self.configuration, f"org.apache.hadoop.yarn.client.cli.{name}"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[Yarn]:
    """Within it a YARN with one node of 5 GB is up. Where it doesn't come up, its log is in `folder`."""
    configuration = folder / "conf"
    configuration.mkdir()
    ports = {
        name: f"127.0.0.1:{free_port()}" for name in ("address", "scheduler", "resource-tracker", "admin", "webapp")
    }
    _site(configuration / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
    _site(
        configuration / "yarn-site.xml",
        {
            "yarn.resourcemanager.address": ports["address"],
            **{f"yarn.resourcemanager.{name}.address": port for name, port in ports.items() if name != "address"},
            "yarn.nodemanager.address": f"127.0.0.1:{free_port()}",
            "yarn.nodemanager.localizer.address": f"127.0.0.1:{free_port()}",
            "yarn.nodemanager.webapp.address": f"127.0.0.1:{free_port()}",
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "5120",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME",
            # Containers' logs also stay where they were written.
            "yarn.nodemanager.delete.debug-delay-sec": "3600",
            "yarn.log-aggregation-enable": "true",
            "yarn.nodemanager.remote-app-log-dir": str(folder / "aggregated"),
        },
    )
    _site(
        configuration / "capacity-scheduler.xml",
        {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
        },
    )
    # Apart: what is in `configuration` goes with each application, and would be how it logs.
    logging = folder / "log4j2.properties"
    logging.write_text(_LOG4J, encoding="utf-8")
    servers = "org.apache.hadoop.yarn.server"
    processes: list[subprocess.Popen[bytes]] = []
    log = folder / "log"
    with log.open("wb") as output:
        try:
            for name in (f"{servers}.resourcemanager.ResourceManager", f"{servers}.nodemanager.NodeManager"):
                command = _java(configuration, name, f"-Dlog4j2.configurationFile={logging}")
                processes.append(subprocess.Popen(command, stdout=output, stderr=output, cwd=folder))
            until(lambda: "Registered with ResourceManager" in log.read_text() or _ended(processes), seconds=90)
            assert not _ended(processes), log.read_text()[-4000:]
            yield Yarn(folder=folder, configuration=configuration, node=processes[1].pid)
        finally:
            # The node first: it ends the containers that are left.
            for process in reversed(processes):
                process.terminate()
                process.wait(60)


def _ended(processes: list[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in processes)


def _java(configuration: Path, name: str, *options: str) -> list[str]:
    """A command that runs a class of Hadoop's."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    assert java is not None, "there is no Java"
    class_path = f"{configuration}:{JARS}/*:{SPARK_HOME}/jars/*"
    return [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *options, "-cp", class_path, name]


def _site(path: Path, properties: Mapping[str, str]) -> None:
    lines = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>\n{lines}</configuration>\n", encoding="utf-8")
