# Each target says in one line what it does; `make help` lists them.

SEED     ?= 1
SEEDS    ?= 1..2000
FUZZTIME ?= 20s
NODES    ?= 3
TIME     ?= 30s
SCENARIO ?= random
STARTS   ?= 1

# Seeds that `make test` sweeps, without the race detector and with it.
TEST_SEEDS ?= 1..200
RACE_SEEDS ?= 1..40

# Seeds over which every probe must have been hit.
PROBE_SEEDS ?= 1..2000

# Crashes at each step of a consumer that keeps its cursor in SQLite.
SQLSTORE_SEEDS ?= 1000

GO ?= go

.DEFAULT_GOAL := help
.PHONY: help setup build run demo test unit race check check-million vet house wasm lint format \
	sim sweep probes scenarios bugs shrink chaos bench bench-peers sqlstore bench-go bench-disk generate generate-check fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing on Debian (as root): chromium for the browser's test
	@sh tools/setup.sh

build: ## write bin/tapedeck and bin/tapedeck-sim
	$(GO) build -o bin/ ./cmd/tapedeck ./cmd/tapedeck-sim

run: build ## a cluster of NODES=3 in one process at 127.0.0.1:7070 and the ports after it, in memory
	bin/tapedeck dev --nodes $(NODES)

demo: build ## start a cluster and show publish, pull, ack and replay on it
	bin/tapedeck demo

test: setup vet race unit ## everything that must be green, in under ten minutes on two cores

unit: build ## TEST_SEEDS seeds of the simulator, and every test
	bin/tapedeck-sim sweep --seeds $(TEST_SEEDS)
	$(GO) test ./...

race: ## core, node and client under the race detector, and RACE_SEEDS seeds
	$(GO) test -race ./core/... ./node/... ./client/...
	$(GO) build -race -o bin/tapedeck-sim-race ./cmd/tapedeck-sim
	bin/tapedeck-sim-race sweep --seeds $(RACE_SEEDS)

check: vet format house ## what needs no running broker: vet, format, imports, purity, sizes, words, wasm

vet: ## go vet
	$(GO) vet ./...

format: ## fail if gofmt would change a file
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }

house: ## the rules about the tree itself (tools/house)
	$(GO) test ./tools/house

wasm: ## build what the simulator runs for a browser
	GOOS=js GOARCH=wasm $(GO) build ./core/... ./node ./sim/... ./checker/...

lint: ## golangci-lint, if it is installed; go vet otherwise
	@if command -v golangci-lint >/dev/null; then golangci-lint run; else \
		echo 'golangci-lint is not installed (https://golangci-lint.run); go vet only'; $(GO) vet ./...; fi

sim: build ## run one seed of the simulator: SEED=1
	bin/tapedeck-sim run --seed $(SEED)

sweep: build ## run many seeds: SEEDS=1..2000
	bin/tapedeck-sim sweep --seeds $(SEEDS)

check-million: build ## judge a history of a million operations; prints time and memory
	@f=$$(mktemp) && bin/tapedeck-sim draw --operations 1000000 "$$f" && bin/tapedeck-sim check "$$f"; \
		exit=$$?; rm -f "$$f"; exit $$exit

probes: build ## fail if a point worth reaching stays cold over PROBE_SEEDS seeds
	bin/tapedeck-sim sweep --seeds $(PROBE_SEEDS) --no-cold

sqlstore: ## crash a consumer with an SQLite database at each step: SQLSTORE_SEEDS=1000 (fetches the driver)
	cd client/sqlstore/example && $(GO) vet ./... && $(GO) test -timeout 30m ./... -args -seeds $(SQLSTORE_SEEDS)

scenarios: ## replay the scenario files
	$(GO) test ./scenarios

bugs: build ## plant known bugs one by one and show that each is caught: STARTS=1; WRITE=1 writes docs/bugs.md
	bin/tapedeck-sim bugs --starts $(STARTS) $(if $(WRITE),--write docs/bugs.md)

shrink: build ## make a failing seed into a scenario to read: SEED=1, or BUG=12 with that bug planted
	bin/tapedeck-sim shrink $(if $(BUG),--bug $(BUG),--seed $(SEED)) --steps

chaos: build ## break real processes under load and judge what clients saw: TIME=30s NODES=3 SCENARIO=random
	$(GO) run ./tools/chaos -bin bin/tapedeck -time $(TIME) -nodes $(NODES) -scenario $(SCENARIO)

bench: build ## the standard table on three nodes of this machine, beside what it can do at all; QUICK=1 under a minute
	$(GO) build -o bin/ ./bench/physical ./bench/suite
	bin/suite $(if $(QUICK),--quick) $(if $(wildcard bin/bench-peers),--peers bin/bench-peers) $(BENCH)

bench-peers: ## the same with NATS JetStream in the same run, if its modules are to be had
	@if cd bench/peers && $(GO) build -o ../../bin/bench-peers .; then cd ../.. && $(MAKE) bench; \
		else echo 'NATS could not be built here (see above): the peers are skipped'; fi

bench-go: ## Go benchmarks of the hot paths, with allocations
	$(GO) test -run '^$$' -bench . -benchmem ./core/... ./client/...

bench-disk: ## Go benchmarks of journal and segments on this disk
	$(GO) test -run '^$$' -bench . -benchmem ./disk/...

generate: ## write the code generated from api/ (needs npm)
	sh tools/generate.sh

generate-check: ## fail if the generated code is not what the schema gives (needs npm)
	sh tools/generate.sh check

fuzz: ## run each fuzz target for FUZZTIME=20s
	@GO='$(GO)' sh tools/fuzz.sh $(FUZZTIME)

clean: ## remove bin/
	rm -rf bin
