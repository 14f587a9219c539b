# Two commands for a newcomer: `make demo` and `make test`. Both make .venv when it is missing;
# plain `make` lists the others.
PYTHON ?= python3
BOOKIE ?=
WITHOUT ?=
PART ?=
BIN := .venv/bin
# Two workers more than there are processors: tests wait for processes and servers half their time.
WORKERS := -n $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2))) --dist loadfile
# Tests sync many small files, and none asks for a disk: they lie in memory where 6 GiB are free.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 6291456 { print "/dev/shm" }')
SCRATCH = scratch=$$(mktemp -d $(or $(MEMORY),$${TMPDIR:-/tmp})/bkstore-tests.XXXXXX) && \
	chmod 711 $$scratch && trap 'rm -rf "$$scratch"' EXIT && trap 'exit 130' INT TERM
# Each worker and each process would compile all modules anew; images for containers say so often.
COMPILED := PYTHONDONTWRITEBYTECODE=
STAMP := .venv/.installed
DOCS := .venv/.installed-docs
PEERS := .venv/.installed-peers
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-all parts bench lint docs

# The first target is what plain `make` does. What stands behind ## is the target's line of help.
help: ## these lines
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# What was mistyped is refused before anything is installed for it.
_bookie:
	@test -z '$(BOOKIE)' || test -r '$(BOOKIE)' || { \
	echo "BOOKIE=$(BOOKIE): no such directory or bk_server.conf, or not readable; nothing was installed" >&2; \
	exit 2; }

$(STAMP): pyproject.toml constraints.txt $(if $(filter demo,$(MAKECMDGOALS)),| _bookie)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bkstore needs Python 3.11 or newer; set PYTHON=python3.x")'
	@echo 'Installing into .venv, once: bkstore and the packages of the demo and the tests (Spark and a'
	@echo 'Java for it, pyarrow, DuckDB, matplotlib, pytest, mypy): 1.4 GB, about 2 minutes.'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[arrow,local,spark,report,serve,zookeeper,dev]'
	touch $(STAMP)

$(DOCS): $(STAMP)
	$(PIP) -e '.[docs]'
	touch $(DOCS)

$(PEERS): $(STAMP)
	$(PIP) -e '.[peers]' || echo 'what is compared with is not all installed: the figures name it' >&2
	touch $(PEERS)

demo: _bookie $(STAMP) ## a cluster, faults, audit, dump, analyses, a report; BOOKIE=DIR: on a bookie of yours
	@echo '$(if $(BOOKIE),The demo only reads $(BOOKIE).,The demo takes about a minute.)'
	$(BIN)/bkstore demo $(if $(BOOKIE),--bookie '$(BOOKIE)')

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# While ruff looks, another process compiles: what fails there fails in the run, and is told. mypy
# looks while the tests wait, and is told behind them.
test: $(STAMP) ## linters and all tests but the long ones
	@$(COMPILED) $(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 & \
	$(BIN)/ruff check . && $(BIN)/ruff format --check .; linted=$$?; wait; exit $$linted
	@$(SCRATCH) || exit; $(BIN)/mypy >$$scratch/mypy 2>&1 & types=$$!; \
	trap 'kill $$types; exit 130' INT TERM; \
	TMPDIR=$$scratch $(COMPILED) $(BIN)/python -m pytest -m 'not long' $(WORKERS); tested=$$?; \
	wait $$types; typed=$$?; cat $$scratch/mypy; test $$tested = 0 || exit $$tested; exit $$typed

# Long sizes are too large for memory: they lie where TMPDIR says.
test-all: lint $(DOCS) ## the long tests too, and other Pythons (WITHOUT=3.14); PART=2/18: a part of it
	$(COMPILED) $(BIN)/python -m tools.parts $(if $(PART),--part '$(PART)') $(addprefix --without ,$(WITHOUT)) -- $(WORKERS)

parts: $(STAMP) ## the parts of test-all: when each last passed, and on which commit
	@$(BIN)/python -m tools.parts --list

bench: $(PEERS) ## the benchmarks, and the pages about speed made of them
	$(BIN)/python -m tools.bench --into docs/figures
	$(BIN)/python -m tools.performance

docs: $(DOCS) ## the pages and the API reference as a site, in site/
	$(BIN)/python -m tools.site
