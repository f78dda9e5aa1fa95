# `make` lists the targets. Everything is installed into .venv, on first use and again when pyproject.toml changes.

PYTHON ?= python3
VENV   ?= .venv
# Where a CPU build of torch comes from, if none is at hand (pip's find-links).
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# `make UV=1 ...` installs by uv in place of pip.
UV     ?=
JOBS   ?= 2
OLDEST_TRITON := 3.6.0
TRITON_RANGE := $(shell sed -n 's/^ *"\(triton[<>=][^"]*\)",$$/\1/p' pyproject.toml)
# Test processes and workers start by the hundred: bytecode is written and used, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

PY  := $(VENV)/bin/python
# Bytecode is written at the end, by all cores; pip takes a minute for it, with one.
PIP := $(if $(UV),uv pip install --quiet --python $(PY),$(PY) -m pip install -qq --no-compile)
TRITON_VENV = .venv-$(VERSION)
# What says nothing about a Triton: Chromium, pages, files, processes and who of a cluster does it, arithmetic, figures,
# what runs on fakes, which outputs agree; and what reaches it only through rooms whose own tests run against the oldest,
# too: the command line, benchmarks, sliders, the registry, programs at other sizes and traced ones, versions of cells,
# explanations.
WITHOUT_TRITON := benchmark benchmarks browser cli docs explore notebooks pytest_plugin registry store workers \
  explain/test_profile.py explain/test_profilers.py explain/test_proton.py explain/test_recorded.py \
  tune/cluster tune/workloads \
  capture/test_plan.py capture/test_pointers.py capture/test_random_sizes.py \
  capture/test_sizes.py capture/test_tracing.py capture/test_unseen.py explain/test_planted.py \
  export/test_exchange.py export/test_frames.py export/test_launcher.py export/test_merging.py \
  export/test_notebook_kernels.py harvest/test_on_cluster.py judge/test_batch.py \
  upgrade/test_cluster_gate.py checking/test_bounds.py checking/test_comparison.py timing/test_config.py \
  checking/test_reference.py timing/test_statistics.py timing/test_stopwatch.py timing/test_timer.py \
  notebook/test_extension.py notebook/test_versions.py notebook/test_why.py test_display.py test_errors.py \
  test_import.py test_layers.py test_optional_packages.py test_package.py test_settings.py test_target.py \
  tune/dispatch/test_extents.py tune/dispatch/test_over.py tune/dispatch/test_rule.py tune/test_agreement.py \
  tune/test_agreement_on_gpu.py tune/test_cluster_tuning.py tune/test_compile_order.py tune/test_device_pool.py \
  tune/test_finals.py tune/test_many.py tune/test_remote.py tune/test_result.py \
  tune/test_search.py tune/test_tuner.py views/test_benchmark.py views/test_card.py views/test_check_picture.py \
  views/test_diff.py views/test_dispatch.py views/test_folding.py views/test_graph_widget.py \
  views/test_in_browser.py views/test_live.py views/test_panel.py views/test_plots.py views/test_profile.py \
  views/test_program.py views/test_regressions.py views/test_suite_graphs.py views/test_tuning.py
# Rows that take seconds each, and say more of the lab than of Triton: against the oldest, those of every run are enough.
LONG_TABLES := tests/judge/test_cheats.py tests/judge/test_honest.py tests/explain/test_promises.py \
  tests/explain/test_statements.py tests/explain/test_advice.py tests/capture/test_symbolic_values.py \
  tests/notebook/test_places.py tests/tune/test_proposed_space.py
TRITON_TESTS ?= tests $(WITHOUT_TRITON:%=--ignore=tests/%) $(LONG_TABLES:%=--ignore=%)
PYTEST := -m pytest -n $(JOBS) --dist worksteal
SIDE_BY_SIDE := $(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target

comma := ,

.DEFAULT_GOAL := help
.PHONY: help demo fast test ci check unit exhaustive notebooks browser lab docs pictures test-gpu test-triton package bench clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo  ## run the quickstart notebook and write build/quickstart.html
	@$(VENV)/bin/kernellab demo

fast: $(VENV)/.installed-test  ## what a change broke, in a minute and a half: unit tests but the slow ones
	$(PY) $(PYTEST) -q -m "not slow and not exhaustive and not browser and not gpu" tests --ignore=tests/browser --ignore=tests/notebooks

# Two at a time, since notebooks and browser wait half of the time; each shows what it prints when it ends.
test: $(VENV)/.installed-test  ## lint, types, notebooks, browser and unit tests, without further rows of large tables
	@$(SIDE_BY_SIDE) unit check notebooks browser

# The exhaustive tests build the site, too, where mkdocs is installed.
ci: $(VENV)/.installed-test,docs  ## everything, as CI runs it: make test, all rows of tables, the site, and the oldest Triton
	@$(SIDE_BY_SIDE) unit exhaustive check notebooks browser test-triton VERSION=$(OLDEST_TRITON)

check: $(VENV)/.installed-test  ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

unit: $(VENV)/.installed-test  ## unit tests alone
	$(PY) $(PYTEST) --durations=10 -m "not exhaustive" tests --ignore=tests/browser

exhaustive: $(VENV)/.installed-test  ## what make test leaves out: further rows of large tables, the package
	$(PY) $(PYTEST) -q -m exhaustive tests --ignore=tests/browser

notebooks: $(VENV)/.installed-test  ## execute the notebooks and compare what they pin
	$(PY) $(PYTEST) --dist loadfile -p nbval --nbval-lax --nbval-current-env --nbval-cell-timeout 300 notebooks

browser: $(VENV)/.installed-test  ## the notebooks in JupyterLab in Chromium (skips without one)
	$(PY) $(PYTEST) --dist loadfile -m browser tests/browser

test-gpu: $(VENV)/.installed-test  ## tests that need a CUDA GPU (skip without one)
	$(PY) -m pytest -m gpu tests

test-triton: $(VENV)/.installed-test  ## what depends on Triton against another one: make test-triton VERSION=3.6.0
	@test -n "$(VERSION)" || { echo "Say which Triton: make test-triton VERSION=3.6.0"; exit 2; }
	$(MAKE) $(TRITON_VENV)/.installed VERSION=$(VERSION)
	JUPYTER_PATH=$(abspath $(VENV))/share/jupyter $(TRITON_VENV)/bin/python $(PYTEST) -p no:cacheprovider $(TRITON_TESTS)
	$(TRITON_VENV)/bin/python $(PYTEST) -p no:cacheprovider -q -m "not exhaustive" $(LONG_TABLES)

lab: $(VENV)/.installed-lab  ## open JupyterLab on the notebooks
	$(VENV)/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

docs: $(VENV)/.installed-docs  ## build the site into build/docs; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "build/docs/index.html"

pictures: $(VENV)/.installed-test  ## draw the pictures of README and site anew (needs Chromium)
	$(PY) -m docs.pictures

package: $(VENV)/.installed-test  ## build the sdist and the wheel into dist/
	$(PY) -m hatchling build -t sdist -t wheel

bench: $(VENV)/.installed-demo  ## measure what %%triton adds; writes benchmarks/results/
	$(PY) benchmarks/import_time.py
	$(PY) benchmarks/cli.py
	$(PY) -m benchmarks.magic
	$(PY) benchmarks/store_crash.py

clean:  ## remove what was built and cached
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environments too
	rm -rf $(VENV) .venv-*

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kernellab needs Python 3.11 or newer, and $(PYTHON) is not: try make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(if $(UV),uv venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV)) || { \
	  echo "No virtual environment could be made; on Debian and Ubuntu install python3-venv, then remove $(VENV)"; exit 1; }

# Without a GPU the default torch of Linux would bring gigabytes of CUDA along; the CPU build is a tenth of that.
$(VENV)/.torch: | $(PY)
	@if $(PY) -c 'import torch' 2>/dev/null; then :; \
	elif command -v nvidia-smi >/dev/null; then echo "GPU found: installing torch with CUDA"; $(PIP) 'torch>=2.11' '$(TRITON_RANGE)'; \
	else echo "No GPU found: installing the CPU build of torch"; \
	  $(PIP) --no-deps --no-index 'torch==2.13.*' 2>/dev/null \
	  || $(PIP) --no-deps --index-url $(TORCH_INDEX) 'torch==2.13.*' \
	  || { echo "No CPU build of torch at $(TORCH_INDEX): name another place, make TORCH_INDEX=..., or install torch into $(VENV)"; exit 1; }; fi
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(VENV)/.torch
	@echo "Installing kernellab[$*] into $(VENV); the first time takes some minutes"
	@$(PIP) -e '.[$*]'
	@$(PY) -m compileall -qq -j 0 $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || :
	@touch $@ $(patsubst %,$(VENV)/.installed-%,$(subst $(comma), ,$*))

# Another Triton in front of everything that .venv holds; numpy 2.4 breaks the interpreter of Triton 3.6.
.venv-%/.installed: $(VENV)/.installed-test
	@echo "Installing triton $* into .venv-$*"
	@$(PY) -m venv $(if $(UV),--without-pip,) .venv-$*
	@.venv-$*/bin/python -m pip install -qq --no-compile --no-deps 'triton==$*' $(if $(filter 3.6.%,$*),'numpy<2.4',)
	@$(PY) -c "import sysconfig; print('import site; site.addsitedir(' + repr(sysconfig.get_path('purelib')) + ')')" \
	  > "$$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	@touch $@
