# `make help` says what there is. PYTHON=/path/to/python3.11 names another Python for `make setup`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo broker test test-unit bench check format package lock clean distclean

VENV := .venv/.complete
JARS := build/jars/kafka/.complete build/jars/delta/.complete
BROKERS ?= 1
SIZE ?= full

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(VENV) $(JARS)  ## install the Python packages into .venv and fetch Kafka's and Delta's jars
	@:

$(VENV): requirements.lock pyproject.toml scripts/setup.sh
	@PYTHON='$(PYTHON)' scripts/setup.sh

# One run of the script makes both; a pattern rule is how make is told so.
build/jars/kafka/%omplete build/jars/delta/%omplete: scripts/fetch_jars.py | $(VENV)
	@.venv/bin/python scripts/fetch_jars.py

demo: setup  ## start a broker, load manifests, provision their topics, look at the result
	@scripts/demo.sh

broker: setup  ## run a Kafka in the foreground until Ctrl-C (BROKERS=3 for three)
	@exec .venv/bin/python -m topicledger.embedded_kafka --jars build/jars/kafka --brokers $(BROKERS)

test: setup  ## run every test (real brokers, a few minutes)
	.venv/bin/python -m pytest tests

test-unit: setup  ## run the tests that need no broker
	.venv/bin/python -m pytest tests/unit

bench: setup  ## measure, side by side, into build/bench (many minutes; SIZE=small only shows that it runs)
	@.venv/bin/python -m benchmarks --size $(SIZE)

check: setup  ## lint, formatting, types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict lib/topicledger $(wildcard jobs/*.py) scripts benchmarks

format: setup  ## format, and fix what the linter can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

package: setup  ## make dist/topicledger.zip for --py-files
	@.venv/bin/python scripts/package.py

lock:  ## write requirements.lock anew from pyproject.toml
	@scripts/lock.sh

clean:  ## remove what was built and the demo's data; keep .venv and the jars
	rm -rf dist data/demo build/demo build/logs build/bench build/fetching-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find lib schemas jobs tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv and everything downloaded
	rm -rf .venv build
