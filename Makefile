# Two commands do all the set-up: `make compare` and `make test`. They need Python >= 3.11 only.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: compare test test-slow lint picture docs clean

compare: $(VENV)/.installed
	$(BIN)/dgp-ppl compare diabetes --steps 1500 --splits 2 --out results/diabetes --overwrite

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 -m slow

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

picture: $(VENV)/.installed
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/flow.py

docs: $(VENV)/.installed
	$(BIN)/python docs/render.py

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) results
