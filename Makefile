.PHONY: demo test peers lint format clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

demo: $(READY)
	@rm -rf runs/demo
	@$(BIN)/iadd-tr train --task inverted-pendulum --algo iadd-tr --epochs 12 --out runs/demo

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pytest --numprocesses 2 --dist loadfile

peers: $(READY)
	$(BIN)/python benchmarks/peers.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml
	@python3 -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "iadd-tr needs python3 3.11 or newer; this one is %d.%d. Put a newer python3 first on PATH." % v[:2])'
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) runs benchmarks/.peers .pytest_cache .ruff_cache .hypothesis
