# Start here: `make demo` shows the machine at work, `make test` runs every check.

VENV := .venv
RUN := $(VENV)/bin/python
# The first interpreter that is new enough; PYTHON=... on the command line wins.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --no-input

DEVICES ?= cpu:0 sim:0
OUT ?= out
SEED ?= 0
PROGRAMS ?= 100000
ROUNDS ?= 100
EXAMPLES ?= 100
SECONDS ?= 300
HOURS ?= 1
DEVICE ?= cuda:0
BUDGET ?= 450
GPU_PYTHON_VERSION ?= 3.12
# The Python for the checks on a GPU: this checkout's environment if it exists, else the machine's Python, which may have CuPy.
GPU_PYTHON ?= $(if $(wildcard $(RUN)),$(RUN),$(PYTHON))

# NVRTC compiles generated kernels; it needs no GPU for that.
CUPY := "cupy-cuda13x==14.2.*" cuda-pathfinder "nvidia-cuda-nvrtc==13.0.*" "cuda-bindings==13.*"

# The tests that use the compiled modules, from a message to its answer; and some tests of the client, which is plain Python.
COMPILED_TESTS := tests/streams/test_kinds.py tests/behaviours tests/model tests/fuzz tests/interrupts tests/vm/admission tests/vm/service \
	$(addprefix tests/client/,calls collectives linking periods pipelines requests routines transport waiting) \
	$(addprefix tests/client/global_tensors/,test_failures.py test_random_programs.py)

.PHONY: demo test lint types imports tests compiled tests-compiled wheels format docs man viewer bench model-long conformance-long fuzz chaos interrupts soak gpu-bundle gpu-check cupy-wheels cupy clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo         train the digits network on the virtual machine (DEVICES=\"$(DEVICES)\", results in $(OUT)/)"
	@echo "make test         every check: ruff, mypy, import-linter, pytest (make tests-compiled: with the engine compiled)"
	@echo "make wheels       the wheel of plain Python, and a compiled one for each Python here, each tried: $(OUT)/dist"
	@echo "make format       ruff: mend what it can mend, and format"
	@echo "make docs         the documentation as a site, links checked: $(OUT)/site/index.html"
	@echo "make man          the manual page of the command line: $(OUT)/tensord.1"
	@echo "make viewer       a viewer of timelines (npm), with which the tests look at ours; they need Chromium, too"
	@echo "make bench        the benchmarks, embedded and through a daemon: tables, $(OUT)/bench.json, $(OUT)/bench-daemon.json"
	@echo "make model-long   random programs against the serial oracle (SEED=$(SEED) PROGRAMS=$(PROGRAMS); GPUS=1: on a fake of CUDA; LAUNCHING=1: on sim devices that launch; CROWDED=1: evicting; COLLECTIVES=1: computing together; NODES=1: over two machines)"
	@echo "make conformance-long  so many calls of each function against NumPy and SciPy (EXAMPLES=$(EXAMPLES))"
	@echo "make chaos        clients and daemons killed, stopped and cut off at random (SEED=$(SEED) ROUNDS=$(ROUNDS))"
	@echo "make interrupts   an exception from outside at every place of the package where Python may raise one, in small programs"
	@echo "make soak         a random load on every tier for HOURS=$(HOURS): memory, descriptors and disk must not grow"
	@echo "make fuzz         hostile clients against the daemon's receiving path (SECONDS=$(SECONDS))"
	@echo "make cupy         what is used of CuPy, and what the fake of it has, against CuPy's own wheel, and generated kernels against NVRTC (fetched into $(OUT)/cupy)"
	@echo "make gpu-bundle   fetch the wheels that a GPU machine without network lacks, for Python $(GPU_PYTHON_VERSION), into .gpu-bundle/"
	@echo "make gpu-check    prove DEVICE=$(DEVICE) within BUDGET=$(BUDGET) seconds: $(OUT)/gpu/report.md; installs and fetches nothing"
	@echo "make clean        remove the environment, caches and results"

demo: $(VENV)/.examples
	@for device in $(DEVICES); do \
		$(RUN) examples/train_digits.py --device $$device --seed $(SEED) --out $(OUT)/$$(echo $$device | tr : -) || exit 1; \
	done

# Each of the first ones keeps one processor busy. The tests keep two busy but for a fifth of the time, in which they wait:
# mypy gets that, and little more, since it is nice. What it finds stands among the dots; `make types` says it again.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target \
		$(if $(filter tests-compiled,$(MAKECMDGOALS)),compiled) $(if $(filter cupy,$(MAKECMDGOALS)),cupy-wheels) lint imports
	@$(MAKE) --no-print-directory --jobs 2 types tests
	@echo "== every check passed"

lint: $(VENV)/.dev
	@echo "== ruff"
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

types: $(VENV)/.dev
	@echo "== mypy"
	@nice $(RUN) -m mypy

imports: $(VENV)/.dev
	@echo "== import-linter"
	@$(VENV)/bin/lint-imports

# The tests start hundreds of processes, and compiling the package again would take half of the time of each. Three workers for two
# processors: while one waits for a process, the others have work. In a fresh clone, where each worker would compile all
# tests at the same time, one process does so before.
tests: $(VENV)/.dev
	@echo "== pytest"
	@[ -d tests/__pycache__ ] || MAKEFLAGS= PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -n 0 --collect-only -qq >/dev/null || true
	@MAKEFLAGS= PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -n 3 --dist worksteal

# CuPy's wheel can be imported without a GPU. It is in a separate folder, so that no other test imports it: 160 MB with NVRTC, 400 MB unpacked.
cupy-wheels: $(VENV)/.dev
	@[ -d $(OUT)/cupy/cuda/bindings ] || $(PIP) --upgrade --target $(OUT)/cupy --no-deps $(CUPY) || true

cupy: cupy-wheels
	@echo "== CuPy's names"
	@if [ -d $(OUT)/cupy/cuda/bindings ]; then \
		PYTHONDONTWRITEBYTECODE= PYTHONPATH=$(OUT)/cupy $(RUN) -m pytest -n 2 -m cupy tests/streams/cuda; \
	else echo "CuPy cannot be had here: what it has is what tests/streams/fake_cuda/names.txt says"; fi

# The same sources with the engine compiled, in a folder of its own: nothing compiled lies beside sources. It is made once,
# and without the C compiler's optimisation, which takes a third of the time and changes nothing that the tests see.
compiled: $(VENV)/.dev
	@echo "== mypyc"
	@TENSORD_COMPILE_LEVEL=0 $(RUN) deploy/compiled.py

tests-compiled: $(VENV)/.dev
	@echo "== pytest, compiled"
	@compiled=$$($(RUN) deploy/compiled.py) || exit 1; \
	if [ -z "$$compiled" ]; then echo "nothing was compiled, for the reason above: these tests are left out"; else \
		PYTHONPATH=$$compiled PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -n 3 --dist worksteal $(COMPILED_TESTS); fi

wheels: $(VENV)/.dev
	@$(RUN) deploy/wheels.py --out $(OUT)/dist

format: $(VENV)/.dev
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

docs: $(VENV)/.docs
	@$(RUN) -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet \
		--conf-dir docs --doctree-dir $(OUT)/doctrees . $(OUT)/site
	@echo "== $(OUT)/site/index.html"

man: $(VENV)/.dev
	@mkdir -p $(OUT)
	@$(RUN) docs/make_man.py > $(OUT)/tensord.1
	@echo "== $(OUT)/tensord.1"

viewer:
	@npm install --prefix out/viewer --no-audit --no-fund --no-save --silent speedscope@1.25.0

bench: $(VENV)/.dev
	@mkdir -p $(OUT)
	@$(RUN) -m bench --json $(OUT)/bench.json
	@$(RUN) -m bench --daemon --json $(OUT)/bench-daemon.json

model-long: $(VENV)/.dev
	@$(RUN) -m tests.model.$(if $(NODES),nodes,run) --seed $(SEED) --programs $(PROGRAMS) $(if $(GPUS),--gpus) $(if $(LAUNCHING),--launching) $(if $(CROWDED),--crowded) $(if $(COLLECTIVES),--collectives)

conformance-long: $(VENV)/.dev
	@TENSORD_CONFORMANCE_EXAMPLES=$(EXAMPLES) $(RUN) -m pytest -n 3 --dist worksteal tests/conformance tests/interpreter/layouts
	@TENSORD_EXAMPLES=$(EXAMPLES) TENSORD_PROGRAMS=$(EXAMPLES) $(RUN) -m pytest -n 3 --timeout 3600 tests/client/global_tensors

fuzz: $(VENV)/.dev
	@$(RUN) -m tests.fuzz.run --seconds $(SECONDS)

chaos: $(VENV)/.dev
	@$(RUN) -m tests.chaos.run --seed $(SEED) --rounds $(ROUNDS)

interrupts: $(VENV)/.dev
	@$(RUN) -m tests.interrupts.run

soak: $(VENV)/.dev
	@$(RUN) -m tests.soak.run --seed $(SEED) --hours $(HOURS)

gpu-bundle:
	@$(GPU_PYTHON) tests/gpu/bundle.py --python $(GPU_PYTHON_VERSION)

gpu-check:
	@OUT=$(OUT) $(GPU_PYTHON) tests/gpu --device $(DEVICE) --budget $(BUDGET)

clean:
	@rm -rf $(VENV) out .gpu-bundle build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps let a second run start at once; a change of pyproject.toml installs again.
$(RUN):
	@test -n "$(PYTHON)" || { echo "tensord needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	@echo "== making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.examples: pyproject.toml | $(RUN)
	@echo "== installing tensord"
	@$(PIP) --editable ".[examples]"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(RUN)
	@echo "== installing tensord with what its checks need"
	@$(PIP) --no-compile --editable ".[dev]"  # Python compiles modules on first import, and most are never imported
	@touch $(VENV)/.examples $@

$(VENV)/.docs: pyproject.toml | $(RUN)
	@echo "== installing tensord with what its documentation needs"
	@$(PIP) --editable ".[docs]"
	@touch $@
