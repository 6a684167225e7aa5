# `make help` says what there is. PYTHON=/path/to/python3.11 names another Python for `make setup`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-airflow setup-browser setup-ci setup-clusters setup-docs setup-queries setup-s3 demo broker test test-all test-unit test-docs test-faults test-airflow test-browser test-clusters test-s3 test-spark test-versions bench pictures docs check format package wheel image lock clean distclean

VENV := .venv/.complete
JARS := build/jars/kafka/.complete build/jars/kafka-tools/.complete build/jars/delta/.complete
LOCAL_FILES := build/jars/local-files/.complete
S3_LOG_STORE := build/jars/s3-log-store/.complete
CLASSES := build/classes/.complete
BROKERS ?= 1
SIZE ?= full
KILLS ?= 50
WORKERS ?= 3
SPARKS ?= 4.0 4.1 4.2 connect wheel-4.0 wheel-4.1 wheel-4.2
KAFKA_VERSIONS ?= 2.8.2 3.3.2 3.9.1 4.0.1 4.3.1 4.4.0
PYTEST = .venv/bin/python -m pytest --numprocesses $(WORKERS)

# Without compiled files, each process of the tests would compile all of them: 7 s of CPU each.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(VENV) $(JARS) $(LOCAL_FILES) $(S3_LOG_STORE) $(CLASSES)  ## install the Python packages into .venv and fetch Kafka's and Delta's jars
	@:

$(VENV): requirements.lock pyproject.toml scripts/setup.sh
	@PYTHON='$(PYTHON)' scripts/setup.sh

# One run of the script makes all; a pattern rule is how make is told so.
build/jars/kafka/%omplete build/jars/kafka-tools/%omplete build/jars/delta/%omplete: scripts/fetch_jars.py scripts/jars.sha256 | $(VENV)
	@.venv/bin/python scripts/fetch_jars.py

$(LOCAL_FILES): lib/topicledger/ledger/LocalFiles.java scripts/compile_java.sh | $(VENV)
	@scripts/compile_java.sh $< build/jars/local-files/local-files.jar \
	  'ledgers on local disks are slower, and two processes must not write one at once'

$(S3_LOG_STORE): lib/topicledger/ledger/ConditionalS3LogStore.java scripts/compile_java.sh | $(VENV) $(JARS)
	@scripts/compile_java.sh $< build/jars/s3-log-store/s3-log-store.jar \
	  'only one command at a time may write a ledger on S3'

$(CLASSES): $(VENV) $(JARS) $(LOCAL_FILES) scripts/archive_classes.sh scripts/archive_classes.py scripts/archive_broker.py
	@echo "setup: archiving Java's classes, once, so that commands start faster: up to some minutes" >&2
	@scripts/archive_classes.sh

setup-browser: setup  ## install Chromium with its driver (Debian's packages) and axe-core, for the tests of reports
	@scripts/setup_browser.sh

setup-airflow: setup  ## install Airflow with its Spark provider into build/airflow, for the tests of the example DAG
	@scripts/setup_environment.sh airflow build/airflow

setup-s3: setup  ## fetch Hadoop's S3A (700 MB), and install a server that speaks S3 into build/s3, for the tests of tables on S3
	@.venv/bin/python scripts/fetch_jars.py s3
	@scripts/setup_environment.sh s3 build/s3

setup-clusters: setup setup-ci  ## fetch a YARN (Maven's jars, 60 MB), and what checks examples/kubernetes, for the tests of clusters
	@.venv/bin/python scripts/fetch_jars.py yarn

setup-ci: $(VENV)  ## install what checks the examples against published schemas into build/ci, for the tests of the examples
	@scripts/setup_environment.sh ci build/ci

setup-queries: $(VENV)  ## install DuckDB, delta-rs and DataHub's reader into build/queries, for the tests of views and catalog files
	@scripts/setup_environment.sh queries build/queries

setup-docs: $(VENV)  ## install mkdocs-material into build/docs-venv, for `make docs`
	@scripts/setup_environment.sh docs build/docs-venv

demo: setup  ## start a broker, load manifests, provision their topics, look at the result
	@scripts/demo.sh

broker: setup  ## run a Kafka in the foreground until Ctrl-C (BROKERS=3 for three, AUTHORIZER=1 for users and ACLs)
	@exec .venv/bin/python -m topicledger_testing.embedded_kafka --jars build/jars/kafka --brokers $(BROKERS) $(if $(AUTHORIZER),--authorizer)

test: setup  ## run the tests, against real brokers, in three processes with one Spark (WORKERS=1 for one)
	$(PYTEST) --dist loadfile --no-loadscope-reorder --durations 10 -m 'not thorough' tests

test-all: setup-browser setup-docs setup-airflow setup-ci setup-clusters setup-queries setup-s3  ## run every test there is, also on other Sparks, faults in all their forms (KILLS=50, hours)
	TOPICLEDGER_KILLS=$(KILLS) TOPICLEDGER_BROWSER=required TOPICLEDGER_AIRFLOW=required TOPICLEDGER_CI_EXAMPLES=required \
	  TOPICLEDGER_CLUSTERS=required TOPICLEDGER_QUERIES=required TOPICLEDGER_S3=required \
	  $(PYTEST) --dist loadfile --no-loadscope-reorder tests
	@$(MAKE) test-spark

test-unit: setup  ## run the fast tests, no broker, no tables, in three processes (WORKERS=1 for one)
	$(PYTEST) --dist loadfile tests/unit

test-docs: setup  ## follow the pages of docs/ against real brokers: commands, outputs, queries, links, generated parts
	.venv/bin/python -m pytest $(wildcard tests/unit/test_docs*.py) tests/unit/test_documented_commands.py tests/unit/test_command_line.py \
	  tests/broker/test_tutorials.py tests/broker/test_how_tos.py tests/broker/test_documented_queries.py

test-faults: setup  ## kill drivers, lose answers, kill brokers: what each fault cost (KILLS=50, an hour)
	TOPICLEDGER_KILLS=$(KILLS) .venv/bin/python -m pytest tests/fault tests/ledger/test_many_runs.py

test-browser: setup-browser setup-docs  ## open reports and the site of docs in headless Chromium: what they show, how they work, whether axe complains
	TOPICLEDGER_BROWSER=required .venv/bin/python -m pytest tests/browser

test-airflow: setup-airflow  ## run the example DAG in Airflow against a real broker: green, refused, killed and tried again
	TOPICLEDGER_AIRFLOW=required .venv/bin/python -m pytest tests/airflow

test-s3: setup-s3  ## keep tables on S3: every command, two drivers at once, killed drivers (KILLS of them, at most 20)
	TOPICLEDGER_KILLS=$(KILLS) TOPICLEDGER_S3=required .venv/bin/python -m pytest tests/s3

test-clusters: setup-clusters  ## run jobs on Spark standalone and on YARN, drivers here and there, and submit to Kubernetes
	TOPICLEDGER_CLUSTERS=required TOPICLEDGER_CI_EXAMPLES=required .venv/bin/python -m pytest \
	  tests/broker/test_standalone_cluster.py tests/yarn tests/kubernetes

test-spark: setup  ## run tests on Spark 4.0 to 4.2, through Spark Connect, and of the installed wheel (SPARKS=4.1)
	@scripts/test_spark.sh $(SPARKS)

test-versions: setup  ## run the tests of what is done to a broker against Kafka 2.8 to 4.4 (KAFKA_VERSIONS=3.9.1)
	@scripts/test_versions.sh $(KAFKA_VERSIONS)

bench: setup  ## measure, side by side, into build/bench (many minutes; SIZE=small only shows that it runs)
	@.venv/bin/python -m benchmarks --size $(SIZE)

pictures: setup-browser  ## take the pictures of docs/pictures again
	TOPICLEDGER_PICTURES=write TOPICLEDGER_BROWSER=required .venv/bin/python -m pytest tests/browser/test_documented_pictures.py

docs: setup-docs  ## build the site of docs/ into build/docs; a dead link or anchor is an error
	@.venv/bin/python -m scripts.generate_docs --site build/docs-source
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --strict

check: setup  ## lint, formatting, types, plain English
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict lib/topicledger lib/topicledger_testing $(wildcard jobs/*.py) scripts benchmarks
	.venv/bin/python scripts/check_prose.py

format: setup  ## format, and fix what the linter can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

package: setup  ## make dist/topicledger.zip for --py-files
	@.venv/bin/python scripts/package.py

wheel: setup  ## make dist/topicledger-VERSION.whl for pip, with its jars and example settings
	@scripts/wheel.sh

image:  ## build the image of examples/kubernetes with docker, podman or buildah (IMAGE=topicledger:0.1.0)
	@scripts/image.sh $(IMAGE)

lock:  ## write the lock files anew, requirements.lock from pyproject.toml
	@scripts/lock.sh

clean:  ## remove what was built and the demo's data; keep .venv and the jars
	rm -rf dist data/demo build/demo build/logs build/bench build/docs build/docs-source build/fetching-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find lib schemas jobs tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv and everything downloaded
	rm -rf .venv build
