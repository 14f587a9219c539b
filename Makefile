# Two commands for a newcomer: `make demo` and `make test`. Both make .venv when it is missing.
PYTHON ?= python3
BOOKIE ?=
WITHOUT ?=
BIN := .venv/bin
WORKERS := -n auto --dist loadfile
STAMP := .venv/.installed
DOCS := .venv/.installed-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all bench lint docs

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bkstore needs Python 3.11 or newer; set PYTHON=python3.x")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[arrow,local,spark,report,serve,dev]'
	touch $(STAMP)

$(DOCS): $(STAMP)
	$(PIP) -e '.[docs]'
	touch $(DOCS)

demo: $(STAMP)
	$(BIN)/bkstore demo $(if $(BOOKIE),--bookie '$(BOOKIE)')

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -m 'not long' $(WORKERS)

test-all: lint $(DOCS)
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest $(WORKERS)
	$(BIN)/python -m tools.pythons $(addprefix --without ,$(WITHOUT))

bench: $(STAMP)
	$(BIN)/python -m tools.bench

docs: $(DOCS)
	$(BIN)/python -m tools.site
