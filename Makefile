PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := build/demo/refold.db
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
PINNED := $(PIP) --require-hashes --only-binary :all: --requirement

# Tests start many programs; without cached bytecode each of them would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test page ui check bench bench-python bench-server bench-postgres bench-claims bench-peers mutants shape proof crash chaos newcomer lock clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Run a playbook, kill it half-way, resume it
	@$(BIN)/python examples/orders/demo.py

# Four processes keep two cores busy, because many tests wait for programs, servers and disks.
test: $(READY) ## Run the tests, without the slow proofs
	$(BIN)/python -m pytest -m "not proof" -n 4 --timeout 300

page: $(READY) ## Build the web page
	@$(BIN)/python web/build_page.py page

ui: page ## Open the web page on the run of the demo; both are made if they are not there
	@test -f $(DEMO) || $(BIN)/python examples/orders/demo.py
	@$(BIN)/refold ui $(DEMO) --playbooks examples/orders

check: $(READY) ## Lint, format, types, layers; of the page too
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python web/build_page.py check

bench: $(READY) ## Measure, and print the exponents
	$(BIN)/python -m bench

bench-python: $(READY) ## Measure Python workflows on SQLite, and `import refold`
	$(BIN)/python -m bench.python_workflows

bench-server: $(READY) ## Measure the server, next to the same work without it
	$(BIN)/python -m bench.server

bench-postgres: $(READY) ## Measure on PostgreSQL, with ratios to what the server alone can commit
	$(BIN)/python -m bench.postgres

bench-claims: $(READY) ## Measure a claim beside 100,000 commands that wait, on SQLite and PostgreSQL
	$(BIN)/python -m bench.claim_cost

bench-peers: $(READY) ## Measure Python workflows compared with other engines (fetches them into the user's cache)
	$(BIN)/python -m bench.peer_runs

.PHONY: bench-page
bench-page: $(READY) ## Measure the web page in a browser: sizes, first rows, DOM nodes, heap, `refold ui` on 1 GB
	$(BIN)/python -m bench.page
	$(BIN)/python -m bench.page_on_file

mutants: $(READY) ## Break each guarded line once; its test must fail
	$(BIN)/python tests/run_mutants.py

shape: $(READY) ## Print the shape of the source: sizes, single importers, repeated names, hops of a one-step run
	@$(BIN)/python -m tests.shape

proof: $(READY) ## Run the slow proofs (about 10 minutes on 2 cores)
	$(BIN)/python tests/run_proof.py --ignore tests/crash

crash: $(READY) ## Kill real processes and cut the power, at every point (about 15 minutes, on a quiet machine)
	$(BIN)/python tests/run_proof.py tests/crash

chaos: $(READY) ## Run a fleet on PostgreSQL under faults (about 3 hours; ROW=T1: one row, SECONDS=60: shorter)
	$(BIN)/python -m tests.chaos $(ROW) $(if $(SECONDS),--seconds $(SECONDS))

newcomer: $(READY) ## A newcomer's first hour, on a fresh clone: the two commands, a playbook, kills, a worker, a schedule
	$(BIN)/python tests/newcomer.py

lock: ## Pin all packages again, with hashes, and list their licences (UPGRADE=1: the newest versions)
	$(PYTHON) -m tests.make_constraints $(if $(UPGRADE),--upgrade)

clean: ## Remove caches and build results; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

# pip and the build backend come first, because those of the interpreter are old. Only packages that are pinned with their
# hash are installed, and only Refold itself is built, without isolation, so that no other package is needed.
$(READY): pyproject.toml constraints.txt constraints-build.txt
	@echo 'preparing .venv'
	@$(PYTHON) -m venv .venv
	@$(PINNED) constraints-build.txt
	@$(PINNED) constraints.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@
