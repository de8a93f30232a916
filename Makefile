# `make demo` and `make test` set up what they need; see scripts/setup.sh.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo
DOCS_READY := $(VENV)/.docs
DEMO_CLUSTER := rules_golden/minikube
# Three for two processors: tests of the kernel wait for a third of their time. At most six: one lock is for all namespaces.
WORKERS ?= $(shell n=$$(($$(nproc) * 3 / 2)); echo $$((n < 2 ? 2 : n > 6 ? 6 : n)))
SLOW_FILES = $(shell grep -rlE 'mark\.slow|import.* spread' tests --include='test_*.py')
# The tests start thousands of processes; each would compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-slow test-soak test-churn docs fresh image image-test lint format bench golden dist release packages web clean vm-image vm-test vm-validate

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## Virtual environment, Python packages, and as root the Debian packages that are missing

$(READY): pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh "$(VENV)"
	@touch $(READY)

$(DEMO_READY): pyproject.toml scripts/setup.sh
	[ -e $(READY) ] || PYTHON="$(PYTHON)" sh scripts/setup.sh "$(VENV)" demo
	@touch $(DEMO_READY)

demo: $(DEMO_READY)  ## Render the minikube cluster of the article, load it in a namespace if root, and show it: 5 seconds
	sh scripts/demo.sh "$(BIN)" $(DEMO_CLUSTER)

# While one processor lints, the other compiles the tests, which each worker would do for itself.
test: $(READY)  ## Lint, then every test but the slow ones
	$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 & $(MAKE) --no-print-directory lint && wait
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow and not soak"

test-slow: $(READY)  ## The slow suites that .ci/run adds; as root with containerd, unpacked beside the environment
	[ "$$(id -u)" -ne 0 ] || sh scripts/container-tools.sh $(VENV)/container-tools
	sh scripts/web.sh tools
	$(MAKE) --no-print-directory $(DOCS_READY)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "slow and not soak" $(SLOW_FILES)

test-soak: $(READY)  ## What CI leaves out: 20,000 packets, thousands of applies under traffic, other random examples
	KPROXY_RANDOM=1 $(BIN)/pytest -n 2 -m "soak or hypothesis"

test-churn: $(READY)  ## Churn against the kernel: SEEDS=100 OPERATIONS=300 FIRST=0; a failure tells its seed
	KPROXY_CHURN_SEEDS=$(or $(SEEDS),100) KPROXY_CHURN_OPERATIONS=$(or $(OPERATIONS),300) KPROXY_CHURN_FIRST=$(or $(FIRST),0) \
		$(BIN)/pytest -n 2 --dist loadscope -rP tests/kernel/run/test_churn.py

fresh:  ## As on a new machine: `make demo` and `make test` from a fresh clone on minimal Debian 12 and 13 (SUITES="...")
	bash scripts/fresh.sh $(SUITES)

image:  ## Build the container image with buildah on a base made with mmdebstrap, as root; print its size
	bash scripts/image.sh

image-test: $(READY)  ## Build the image and run it with podman: the API server, and the agent as its DaemonSet does, as root
	bash scripts/image.sh --test "$(BIN)/python"

lint: $(READY)  ## ruff, mypy strict, import-linter, the budgets of lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/lines.py

format: $(READY)  ## Let ruff format and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## Speed, with the reference's figures beside ours
	$(BIN)/python -m bench

golden: $(READY)  ## Compare rules_golden/ with what kproxy renders
	$(BIN)/kproxy golden check

dist: $(READY)  ## The sdist and the wheel, of the same bytes each time, in dist/
	rm -rf dist build/tools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/tools "hatchling>=1.26"
	PYTHONPATH=build/tools $(BIN)/python -c \
		"from hatchling import build; build.build_sdist('dist'); build.build_wheel('dist')"
	rm -rf build/tools && ls -l dist

release:  ## Tag a version and build its archives: VERSION=1.2.3; the changelog's first heading becomes it
	sh scripts/release.sh "$(VERSION)"

packages: $(READY)  ## Build both, and try them with each Python of 3.11 to 3.13 that is here, pipx and uv; print which
	$(BIN)/pytest -n 0 -o log_cli=true --log-cli-level=INFO tests/packaging/test_packages.py

web:  ## Build the page of kproxy explore, with Node (web/README.md); its files are in the repository
	sh scripts/web.sh

docs: $(DOCS_READY)  ## Build the documentation site into build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site is in build/site: open build/site/index.html"

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(DOCS_READY)

vm-image:  ## Build the virtual machine's image (cached), as root
	VM_STEPS=image bash vagrant/qemu/test.sh

vm-test: vm-validate  ## In a virtual machine with Debian's kernel: the overlay and golden clusters (SCENARIOS="..."; docs/vm.md)
	bash vagrant/qemu/test.sh $(SCENARIOS)

vm-validate:  ## Check the Vagrantfile, without a provider
	bash vagrant/validate.sh

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
