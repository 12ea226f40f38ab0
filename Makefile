# make demo    set up everything and run the main job on a virtual board
# make quick   the tests without virtual boards, servers and compilers
# make test    set up everything and pass the tests
# make wheel   the package, in dist/
# make soak    the long counts
# make bench   the measurements that the documents quote
# make soak-servers  loads and evaluations of real model servers, and their table in docs/

.PHONY: setup setup-tests demo check quick test soak soak-servers bench wheel clean
PYTEST = .venv/bin/python -m pytest
# Two more than there are processors, for tests wait a lot; at most 4.
WORKERS = $$(n=$$(($$(nproc) + 2)); echo $$((n < 4 ? n : 4)))

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

test: setup-tests check
	scripts/test -n $(WORKERS) --dist loadfile -m "not soak and not bench and not servers"

# Folders whose tests need Python alone.
QUICK_FOLDERS = api config database engines gguf models performance records results stats
quick: setup check
	$(PYTEST) -q -n $(WORKERS) --dist loadfile -m "not e2e and not soak and not bench" \
	  $$(for f in $(QUICK_FOLDERS); do echo tests/$$f; done) tests/test_*.py

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
