# Two commands: `make book` builds the book, `make test` checks all of it.
# Needs Python >= 3.11 and make (3.81 or newer); everything else goes into .venv.

PYTHON ?= python3
# `make book TORCH_INDEX=https://download.pytorch.org/whl/cpu` takes PyTorch's CPU build.
TORCH_INDEX ?=
# Of `make publish`, from its command line only. REPO= (empty) takes the address out again.
REPO :=
BRANCH :=
SITE :=

VENV := .venv
PY := $(VENV)/bin/python
CACHE := .cache
BOOK_SOURCES := _config.yml _toc.yml book notebooks commlab
WHEEL_SOURCES := pyproject.toml README.md LICENSE commlab tools/wheel.py

# The pages run in .venv's kernel with nobody's settings: neither a user's kernel of the same
# name nor a matplotlibrc, an IPython profile or a startup file may change what a page shows.
export JUPYTER_PATH := $(CURDIR)/$(VENV)/share/jupyter
export JUPYTER_PREFER_ENV_PATH := 1
export JUPYTER_DATA_DIR := $(CURDIR)/$(CACHE)/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CURDIR)/$(CACHE)/jupyter/runtime
export JUPYTER_CONFIG_DIR := $(CURDIR)/$(CACHE)/jupyter/config
export IPYTHONDIR := $(CURDIR)/$(CACHE)/ipython
export MPLCONFIGDIR := $(CURDIR)/$(CACHE)/matplotlib
export PYTHONNOUSERSITE := 1
unexport JUPYTER_CONFIG_PATH JUPYTERLAB_DIR MATPLOTLIBRC MPLBACKEND PYTHONHOME PYTHONPATH
unexport PYTHONSTARTUP PYTHONWARNINGS COMMLAB_EXPLORE

.PHONY: help install book publish test test-full lab notebooks format clean FORCE
.DEFAULT_GOAL := help

help:
	@echo "make book       build the book into _build/html (makes .venv first)"
	@echo "make publish REPO=owner/name   write the address of the published book into it"
	@echo "make lab        open the notebooks in JupyterLab"
	@echo "make notebooks  execute all notebooks and store their outputs the one way"
	@echo "make test       everything that CI checks"
	@echo "make test-full  the same and the long checks of the night"
	@echo "make format     format the code and fix what ruff can fix"
	@echo "make clean      remove what was built (keeps .venv)"
	@echo
	@echo "TORCH_INDEX=https://download.pytorch.org/whl/cpu  takes PyTorch's small CPU build"
	@echo "PYTHON=python3.12                                 names the Python to use"

install: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PY) -m pip --version >/dev/null 2>&1 || \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "This book needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true):" \
	    "install one and name it, for example: make book PYTHON=python3.12" >&2; exit 1; }
	@# A whole environment is brought up to date, a missing or broken one is made anew.
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the pinned packages into $(VENV) ..."
	$(PY) -m pip install --quiet --disable-pip-version-check \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Rewritten only when a source's content changed, so that git's time stamps cause no rebuild.
$(CACHE)/book-sources: $(VENV)/.installed FORCE
	@$(PY) -m tools.fingerprint $@ $(BOOK_SOURCES)

$(CACHE)/wheel-sources: $(VENV)/.installed FORCE
	@$(PY) -m tools.fingerprint $@ $(WHEEL_SOURCES)

_build/.book: $(VENV)/.installed $(CACHE)/book-sources
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute
	COMMLAB_EXPLORE=static $(VENV)/bin/jupyter-book build . --all -W --keep-going || { \
	  find _build/html/reports -name '*.err.log' -exec cat {} + 2>/dev/null; \
	  echo "The book is not whole: see the warnings and errors above." >&2; exit 1; }
	@touch $@

# The built site carries the package: a notebook on Colab takes it from there.
_build/.wheel: _build/.book $(CACHE)/wheel-sources
	@$(PY) -m tools.wheel _build/html/wheel
	@$(PY) -m tools.links _build/html
	@touch $@

book: _build/.wheel
	@$(PY) -m tools.where _build/html

publish: $(VENV)/.installed
ifneq ($(origin REPO),command line)
	@echo "Name the repository on GitHub: make publish REPO=owner/name" >&2; exit 2
else
	@$(PY) -m tools.publish --repo="$$REPO" --branch="$$BRANCH" --site="$$SITE"
	@$(MAKE) --no-print-directory book
endif

test:
	@started=$$(date +%s) && $(MAKE) --no-print-directory install && \
	  $(PY) -m tools.check --started $$started

test-full:
	@started=$$(date +%s) && $(MAKE) --no-print-directory install && \
	  $(PY) -m tools.check --full --started $$started

lab: $(VENV)/.installed
	$(PY) -m jupyterlab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/01_why_one_gpu_is_not_enough.ipynb

notebooks: $(VENV)/.installed
	$(PY) -m tools.notebooks notebooks

format: $(VENV)/.installed
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf _build $(CACHE) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

FORCE:
