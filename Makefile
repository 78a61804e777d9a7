# The verbs of the fleet. `make help` lists them; every one does its own set-up, a second run installs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -Eeuo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
UV := $(shell sed -nE 's/^uv==([0-9.]+).*/\1/p' requirements-uv.lock)
export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
export PYTHONPATH := $(CURDIR)
# A machine that turns bytecode off would compile CDK's 20 MB of Python, moto's and ours in every process.
unexport PYTHONDONTWRITEBYTECODE
# Nothing on the screen or the wire but the command's own business.
export CDK_DISABLE_CLI_TELEMETRY := 1
export CDK_DISABLE_VERSION_CHECK := 1

# Every package is one that requirements.lock names by its hash, and none runs code of its own when it is installed.
INSTALL := uv pip install -q --require-hashes --no-build -c requirements.lock
DEPLOY := $(VENV)/.deploy-ready $(VENV)/.gateway-ready $(VENV)/.lane-ready node_modules/.ready
DEV := $(VENV)/.dev-ready $(VENV)/.gateway-ready $(VENV)/.lane-ready node_modules/.ready
ARGS :=

help: ## list the verbs
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

# --- set-up ---------------------------------------------------------------------------------------------------
$(VENV)/.uv-ready: requirements-uv.lock
	@echo "setting up Python packages ..."
	test -x $(VENV)/bin/python || python3 -m venv $(VENV)
	test "$$($(VENV)/bin/uv --version 2>/dev/null | cut -d' ' -f2)" = $(UV) || \
	  $(VENV)/bin/python -m pip install -q --require-hashes --only-binary :all: -r requirements-uv.lock
	touch $@

$(VENV)/.drill-ready: requirements-drill.txt requirements-aws.txt requirements.lock pyproject.toml | $(VENV)/.uv-ready
	$(INSTALL) -r requirements-drill.txt
	uv pip install -q --no-deps --no-index --no-build-isolation -e .
	touch $@

$(VENV)/.deploy-ready: requirements.txt $(VENV)/.drill-ready
	$(INSTALL) -r requirements.txt
	python -c "import app, fleet.cli.fleetctl"
	touch $@

# What the gateway's image holds, for its platform and its Python (assets/gateway.Dockerfile): nothing here runs it.
# Of botocore's descriptions of every service, those that it calls.
CALLED := dynamodb elbv2 s3 secretsmanager sts
IMAGE := --python-platform aarch64-manylinux_2_28 --python-version 3.13
$(VENV)/.gateway-ready: requirements-gateway.txt requirements-aws.txt requirements.lock Makefile | $(VENV)/.uv-ready
	rm -rf $(VENV)/gateway-image
	$(INSTALL) --target $(VENV)/gateway-image $(IMAGE) -r requirements-gateway.txt
	rm -rf $(VENV)/gateway-image/bin $(VENV)/gateway-image/.lock
	cd $(VENV)/gateway-image/botocore/data && find . -mindepth 1 -maxdepth 1 -type d $(patsubst %,! -name %,$(CALLED)) -exec rm -r {} +
	touch $@

# What the lane imports, for the box's platform and its Python: `fleet.config.box_config` packs it into the bundle.
BOX := --python-platform x86_64-manylinux_2_28 --python-version 3.9
$(VENV)/.lane-ready: requirements-lane.lock Makefile | $(VENV)/.uv-ready
	rm -rf $(VENV)/lane-packages
	uv pip install -q --require-hashes --no-build --target $(VENV)/lane-packages $(BOX) -r requirements-lane.lock
	touch $@

$(VENV)/.review-ready: requirements-review.txt $(VENV)/.drill-ready
	$(INSTALL) -r requirements-review.txt
	touch $@

$(VENV)/.dev-ready: requirements-dev.txt requirements-gateway.txt $(VENV)/.deploy-ready $(VENV)/.review-ready
	$(INSTALL) -r requirements-dev.txt
	python -c "import cdk_nag, cfnlint.api, moto.server"
	touch $@

node_modules/.ready: package.json package-lock.json $(VENV)/.deploy-ready
	@echo "setting up the CDK CLI ..."
	npm ci --silent
	touch $@

setup: $(DEPLOY) ## install what a deploy needs

setup-review: $(VENV)/.review-ready ## install what the review of a pull request needs, beside its credentials

setup-dev: $(DEV) ## install what demo, test, review and bench need as well

drill: $(VENV)/.drill-ready ## live through the night of 28 July under every policy; ARGS="us-west-2 --seeds 20"
	@fleetctl drill $(ARGS)

thresholds: $(VENV)/.drill-ready ## sweep every threshold and rewrite docs/thresholds.md (minutes)
	@python -m fleet.sim.experiments.threshold_sweep $(ARGS)

reference: $(VENV)/.drill-ready ## write what the docs say word for word: tables of settings and boot stages, schema of cdk.json
	@python -m fleet.config.reference

pictures: $(VENV)/.drill-ready ## draw the pictures of the README and the docs again
	@python -m fleet.sim.experiments.pictures

bench-drills: $(VENV)/.drill-ready ## seconds, scaling and memory of 45 simulated days
	@python -m fleet.sim.experiments.bench

bench-callers: $(VENV)/.drill-ready ## what callers add to 45 simulated days; their waits beside queueing theory (minutes)
	@python -m fleet.sim.experiments.callers_bench

# What the box's tests need of the machine: firewall tools, file systems, the AWS CLI, systemd's checker, llama.cpp's OpenMP.
BOX_PACKAGES := awscli curl iproute2 iptables libgomp1 mount nftables systemd util-linux xfsprogs
box-setup: ## install (on Debian, as root) the system's tools that the box's tests need
	@for package in $(BOX_PACKAGES); do dpkg-query -s $$package >/dev/null 2>&1 || missing="$${missing:-} $$package"; done; \
	if [ -n "$${missing:-}" ]; then \
	  [ "$$(id -u)" = 0 ] || { echo "the box's tests need root, and the packages:$$missing"; exit 1; }; \
	  echo "installing what the box's tests need:$$missing ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

lint: $(DEV) ## format, lint, types
	ruff format --check .
	ruff check .
	mypy app.py fleet lambdas stacks
	cd assets/bootstrap && mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache/box .
	cd assets && MYPYPATH=..:. mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache/gateway -p gateway -p relay
	cd assets && MYPYPATH=bootstrap:. mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache/lane -p lane
	actionlint
	python -m tests.lint_shell

check: $(DEV) ## lint, types and every test that needs neither root nor minutes
	@$(MAKE) --no-print-directory -j2 lint quick-tests

# One worker more than cores: some tests wait.
quick-tests: $(DEV)
	@pytest -n 3 --dist worksteal -m "not root and not slow"

# More workers than cores: boxes mostly wait. What all of them need is made once (tests/embedded_fleet.py).
test: lint box-setup ## everything CI runs
	@mkdir -p build
	requests=$$(mktemp -d $(CURDIR)/build/requests.XXXXXX) && \
	  REQUEST_LOGS=$$requests pytest -n 4 --dist loadfile --no-loadscope-reorder && \
	  python -m tests.permissions $$requests && rm -r $$requests

test-deploys: $(DEV) ## second deploys by the CDK CLI, of what `make test` deploys without it
	pytest -m deploys tests/e2e

# --- the fleet ------------------------------------------------------------------------------------------------
demo: $(DEV) ## from nothing: the fleet on an AWS inside this machine, robbed of its GPU, recovered
	@python -m fleet.demo

synth: $(DEPLOY) ## synthesize all stacks into cdk.out, offline
	cdk list --no-notices

diff: $(DEPLOY) ## what a deploy would change; by change sets where the stacks stand, or the lever's move would not show
	cdk diff --all --method=auto --no-notices $(ARGS)

deploy: $(DEPLOY) ## the model store; then, once it is filled, everything else (ARGS go to the CDK CLI)
	@python -m fleet.ops.deploy deploy $(ARGS)

destroy: $(DEPLOY) ## delete every stack; names what is kept and what still costs money
	@python -m fleet.ops.deploy destroy $(ARGS)

review: $(DEV) ## what a deploy of this checkout would do to the deployed stacks: out/review.md, the pull request's comment
	cdk list --no-notices > /dev/null
	fleetctl review --out out/review.md

cloud: $(DEV) ## an AWS inside this machine, in the foreground: try every command by hand, no account needed
	@python -m fleet.localaws.foreground

game-day: $(DEV) ## the fleet through a bad day on an AWS inside this machine, under load; ARGS=--live for your own
	@fleetctl game-day $(ARGS)

faults: $(DEPLOY) ## what `fleetctl game-day --live --scenario N` injects, in a stack of its own; ARGS=destroy takes it away again
	cdk $(or $(ARGS),deploy) --app "python -m stacks.faults" --output build/faults --no-notices

bench-ops: $(DEV) ## seconds and calls of fleetctl status and preflight
	python -m scripts.bench_ops

bench-walk: $(DEV) ## seconds of every line of a newcomer's path: clone, demo, edit, preflight, diff, deploy, ..., destroy
	@python -m tests.e2e.bench

bench-gateway: $(DEV) ## what the gateway adds to a direct call, beside LiteLLM's proxy; 1,000 streams; 1,000 callers who leave
	@python -m tests.gateway.bench

bench-lane: $(DEV) ## the lane: added latency, memory, estimates, 10^5 steps, 200 notices, slices on a real engine (10 min)
	@python -m tests.lane.bench

chaos: $(DEV) ## notices, a dry market, cut clients and a ramp of load against gateway and lane as processes; 1 on a miss (10 min)
	@python -m tests.lane.chaos $(ARGS)

bench-reclaim: $(DEV) ## a box is taken under callers, at the rate that it can serve and at ten times that; counts reconcile
	@python -m tests.gateway.bench_reclaim

bench-receipts: $(DEV) ## 1,000 drawn lives, each exported, replayed and held against itself
	@python -m tests.drills.lives

bench-fleets: $(DEV) ## fleets of 4 and 20 boxes against the fallback (hours; ARGS=--resume goes on)
	python -m tests.drills.fleets $(ARGS)

bench-alike: $(DEV) ## one box, drilled as here and as in another commit: no figure may move (ARGS=COMMIT)
	python -m tests.drills.alike $(ARGS)

bench-changes: $(DEV) ## seconds of every line of a user who changes port, zones and callers on a standing fleet
	@python -m tests.e2e.bench_changes

bench-policy: $(DEV) ## every policy on the same markets and seeds: the table of bounds (40 minutes; ARGS=--resume goes on)
	python -m fleet.sim.experiments.bounds $(ARGS)

test-box: $(DEV) box-setup ## the box alone, in its own namespaces
	pytest -n 2 --dist load tests/box

bench-boot: BOX_PACKAGES += busybox openssl
bench-boot: $(DEV) box-setup ## restore, boot graph, notice and agent, measured in pairs on this machine
	python -m tests.box.bench

bench-leave: $(DEV) box-setup ## boxes that leave under load: planned replacements, notices amid traffic (10 min)
	python -m tests.box.bench_leave

bench-watchdog: $(DEV) ## cold start of the watchdog's real zip against a bare handler, in pairs; its memory
	python -m tests.watchdog.bench

hostility: $(DEV) ## a million invocations of generated hostility: markets, lifetimes, refusals, events (a quarter of an hour)
	python -m tests.watchdog.hostility $(ARGS)

mutants: $(DEV) ## change the watchdog's policy and actions in every place: its tests must notice (minutes)
	python -m tests.watchdog.mutants

fuzz: $(DEV) ## 10^5 hostile inputs through everything that an outsider writes (an hour); ARGS="-k receipts"
	FUZZ=100000 pytest -n 0 --durations 0 tests/hostile $(ARGS)

bench-synth: $(DEV) ## cdk synth against an empty one-stack app, in pairs
	@python -m tests.infra.bench

LOCK := uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate --generate-hashes
lock: | $(VENV)/.uv-ready ## pin what the requirements pull in, with the hash of every file
	$(LOCK) requirements-dev.txt -o requirements.lock
	echo uv==$(UV) | $(LOCK) - -o requirements-uv.lock
	uv pip compile -q $(BOX) --no-header --no-annotate --generate-hashes --only-binary :all: requirements-lane.txt -o requirements-lane.lock

# --- measures -------------------------------------------------------------------------------------------------
bench: $(filter-out bench-policy bench-fleets bench-alike,$(shell sed -nE 's/^(bench-[a-z]+):.*/\1/p' $(MAKEFILE_LIST))) ## every measure but those that take an hour, and the comparison with another commit

# Every verb is a name, not a file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(MAKEFILE_LIST))
