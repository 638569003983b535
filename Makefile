# Two commands, nothing else needed before either: Python >= 3.11, git, a C++ compiler and a package index.
#   make demo    break a sandbox environment on purpose and recover it
#   make test    run the tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Python compiles a module when it is first imported; compiling all of them here takes a third of the time.
INSTALL := -m pip install -qq --disable-pip-version-check --no-compile --editable

.PHONY: demo test test-remote benchmarks lint clean

demo: $(VENV)/.installed
	$(BIN)/recover sandbox create
	$(BIN)/recover run sandbox --yes

# Two at a time: much of the time a test waits for a kernel, a compiler or a deadline.
test: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# The way to a container behind a Proxmox host, on a test bed of its own: needs root, openssh-server and lxc.
test-remote: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m remote tests/integration/remote

# Side by side with ssh, scp and (where there is one) Ansible, on the same bed; writes tests/benchmarks/results.
benchmarks: $(VENV)/.installed-test
	$(BIN)/python tests/benchmarks/reach.py

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@echo "Making the operator's environment in $(VENV) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed; this one is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || uv venv --seed --python $(PYTHON) $(VENV) || \
	  { rm -rf $(VENV); echo "No virtual environment could be made: install python3-venv or uv, then try again."; exit 1; }

$(VENV)/.installed: $(BIN)/python pyproject.toml
	@echo "Installing the operator's package (a minute or two the first time) …"
	@$(BIN)/python $(INSTALL) .
	@touch $@

$(VENV)/.installed-test: $(BIN)/python pyproject.toml
	@echo "Installing the operator's package and the tools for its tests (a minute or two the first time) …"
	@$(BIN)/python $(INSTALL) '.[test]'
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV)
