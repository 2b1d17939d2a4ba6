# Everything that `make` installs goes into .venv, to the versions of requirements.lock; nothing
# outside this folder changes. Only Python 3.11 or newer (with venv), git and make are needed.

BIN := .venv/bin
# Named after what is installed, so that a changed list is installed anew and the same one is not.
INSTALLED := .venv/.installed-$(shell cat requirements.lock pyproject.toml | cksum | cut -d ' ' -f 1)
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTHONS := $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python

.PHONY: help run lab test run-all bench soak clean

help:
	@echo 'make run      train the GAN on real MPI ranks: chapters 00-05, results in outputs/'
	@echo 'make lab      open the notebooks in JupyterLab (your working copies, in lab/)'
	@echo 'make test     check the code and run the tests'
	@echo 'make run-all  run every chapter'
	@echo 'make bench    run the measurements in benchmarks/'
	@echo 'make soak     run the long tests'
	@echo 'make clean    remove .venv, outputs/ and caches; lab/ with your work stays'

run: $(INSTALLED)
	@$(BIN)/gan-tutorial run

run-all: $(INSTALLED)
	@$(BIN)/gan-tutorial run --chapters all

lab: $(INSTALLED)
	@$(BIN)/gan-tutorial lab lab $(FLAGS)

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m 'not soak'

soak: $(INSTALLED)
	$(BIN)/python -m pytest -m soak

bench: $(INSTALLED)
	@$(BIN)/gan-tutorial bench

clean:
	rm -rf .venv outputs dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find tutorial_lib tests benchmarks notebooks cluster_profiles \
	  \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

$(INSTALLED): | $(BIN)/python
	@$(PIP) --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade
	@echo 'Installing PyTorch, MPI, JupyterLab and what they need into .venv.'
	@$(PIP) install --quiet -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@rm -f .venv/.installed-*
	@touch $@

# The first Python that is new enough and can make virtual environments.
$(BIN)/python:
	@reason='Found no Python.'; \
	for python in $(PYTHONS); do \
	  version=$$($$python -c 'import platform; print(platform.python_version())' 2>/dev/null) \
	    || continue; \
	  if ! $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	    reason="$$python is Python $$version."; continue; fi; \
	  if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    reason="$$python ($$version) lacks the venv module (Debian, Ubuntu: apt install python3-venv)."; \
	    continue; fi; \
	  echo "Making .venv with Python $$version. The first time takes some minutes."; \
	  exec $$python -m venv .venv; \
	done; \
	echo "make: $$reason This needs Python 3.11 or newer with its venv module;" >&2; \
	echo "make: install one, or name one: make run PYTHON=/path/to/python3" >&2; \
	exit 1
