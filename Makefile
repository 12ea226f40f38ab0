# make demo    set up everything and run the main job on a virtual board
# make quick   check, and the tests without emulator, servers and containers: two minutes
# make test    set up everything and pass the tests
# make wheel   the package, in dist/
# make soak    the long counts
# make bench   the measurements that the documents quote
# make soak-servers  loads and evaluations of real model servers, and their table in docs/

.PHONY: setup setup-tests demo check quick test soak soak-servers bench wheel clean
PYTEST = .venv/bin/python -m pytest
# Two more than there are processors, for tests wait a lot; at most 4.
WORKERS = $$(n=$$(($$(nproc) + 2)); echo $$((n < 4 ? n : 4)))
TESTS = not soak and not bench and not servers

setup:
	scripts/setup

setup-tests:
	scripts/setup tests

demo: setup
	scripts/demo

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

quick: check
	scripts/test -n $(WORKERS) --dist loadfile -m "$(TESTS) and not e2e and not slow"

test: setup-tests check
	scripts/test -n $(WORKERS) --dist loadfile -m "$(TESTS)"

soak: setup-tests
	LABCTL_TEST_FRESH=1 $(PYTEST) -m soak -s --timeout 7200

soak-servers: setup-tests
	LABCTL_WRITE_TABLE=1 $(PYTEST) -m servers -s tests/servers

bench: setup-tests
	LABCTL_TEST_FRESH=1 $(PYTEST) -m bench -s --timeout 7200

wheel: setup
	.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .labctl
