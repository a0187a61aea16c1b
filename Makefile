# Everything a newcomer needs: `make demo`, `make test`. The first run builds .venv; later ones need no network.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# what Mainstay itself needs, and then what its tests and tools need as well
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed

# the first interpreter that is new enough; `make PYTHON=/path/to/python` overrides it
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
UV := $(shell command -v uv 2>/dev/null)

# loadfile: the tests of one file share a process and keep their order. In the order they are collected: by number of tests,
# the few that take longest would come last. Many of them wait for a lease or a server, so three processes fill two cores;
# with four, tests of deadlines meet a machine on which everything is late
PYTEST_ARGS ?= -q -n 3 --dist loadfile --no-loadscope-reorder

# Tests start more than a thousand programs. Where no bytecode is kept each compiles all that it imports, which takes as
# long as the rest of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick check house fmt docs generate bench compare sim soak lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## run a few hundred jobs that end in every possible way, on SQLite, in a temporary folder
	@$(PY) examples/demo.py

test: $(STAMP) ## run every test, the examples in the documentation included
	$(PY) -m pytest $(PYTEST_ARGS)

quick: $(STAMP) ## the tests, without the slow ones
	$(PY) -m pytest $(PYTEST_ARGS) -m "not slow"

check: $(STAMP) ## format, lint, types, import layers and the generated client; seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PY) tools/unasync.py --check

house: $(STAMP) ## measure the source tree: size, names, imports, words, the start of the program
	@$(PY) -m tests.house

fmt: $(STAMP) ## format the code and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## write the generated pages from the code
	$(PY) docs/generate.py

generate: $(STAMP) ## write the synchronous client from the asynchronous one
	$(PY) tools/unasync.py

bench: $(STAMP) ## measure, beside other job queues, ways to run a study and load generators; over an hour
	$(PY) -m bench

compare: $(STAMP) ## measure this tree beside another revision, in turns: make compare REV=HEAD~10
	@test -n "$(REV)" || { echo "say which revision: make compare REV=HEAD~10"; exit 2; }
	$(PY) -m bench.revisions $(REV) --json bench/results/revisions.json

SEEDS ?= 1000
WORLD ?= small
sim: $(STAMP) ## run workers and nodes in seeded simulation, with crashes, freezes and lost calls: make sim SEEDS=5000 WORLD=big
	$(PY) -m sim --seeds $(SEEDS) --world $(WORLD)

soak: $(STAMP) ## a million jobs, ten engines and random kills, on PostgreSQL and on Redis; an hour
	$(PY) -m soak

lock: ## choose the newest allowed versions and pin them (needs uv and a network)
	@test -n "$(UV)" || { echo "make lock needs uv on the PATH"; exit 1; }
	@{ head -1 requirements.lock; "$(UV)" pip compile -q --universal --python-version 3.11 --no-header --no-annotate \
		--upgrade pyproject.toml --group dev; } > requirements.new && mv requirements.new requirements.lock

clean: ## remove the environment and every cache
	rm -rf $(VENV) .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each is made again only when what is installed changes. uv is faster but does not read pip's configuration, so where
# it cannot find a package (a private mirror, say) pip gets its turn.
UV_PIP = test -n "$(UV)" && "$(UV)" pip
PIP = $(PY) -m pip install -q --disable-pip-version-check

$(RUNTIME): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Mainstay needs Python 3.11 or newer; found none. Try: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(PY) || { echo "building $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	@{ $(UV_PIP) install -q --python $(PY) -c requirements.lock hatchling editables 2>$(VENV)/uv.log \
		&& $(UV_PIP) install -q --python $(PY) -c requirements.lock --no-build-isolation -e . 2>$(VENV)/uv.log; } || { \
		$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null; \
		$(PIP) -c requirements.lock hatchling editables && $(PIP) -c requirements.lock --no-build-isolation -e .; }
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME)
	@{ $(UV_PIP) sync -q --python $(PY) requirements.lock 2>$(VENV)/uv.log \
		&& $(UV_PIP) install -q --python $(PY) --no-deps --no-build-isolation -e . 2>$(VENV)/uv.log; } \
		|| $(PIP) -r requirements.lock
	@touch $(STAMP)
