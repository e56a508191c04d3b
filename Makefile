# make, or make help, lists what there is to do.

# The FoundationDB engine is built where FoundationDB's headers and a C compiler
# are installed; Go turns cgo off where there is no compiler.
FDB_HEADER := $(wildcard /usr/include/foundationdb/fdb_c.h /usr/local/include/foundationdb/fdb_c.h)
TAGS       := $(if $(FDB_HEADER),$(if $(filter 1,$(shell go env CGO_ENABLED)),fdb))
TAG_FLAGS  := $(if $(TAGS),-tags $(TAGS))
# The race detector needs a C compiler: make test RACE=1, or make race.
RACE_FLAGS := $(if $(RACE),-race)
# For the race detector, which else gets new pages from the system for what it knows of each large block, a fifth of the time of
# tests with large messages, and waits a whole second at the end of each program for races of goroutines that still run.
export GORACE ?= clear_shadow_mmap_threshold=1073741824 atexit_sleep_ms=100
# How long the tests of one package may take; a test that hangs ends there.
TIMEOUT    := 14m
# Set for releases.
VERSION    :=
LDFLAGS    := $(if $(VERSION),-ldflags "-X main.version=$(VERSION)")

.DEFAULT_GOAL := help
.PHONY: help run build test race check fmt fmt-check vet staticcheck image-test deploy-test dashboard-test dashboard-shots dashboard-measure bench bench-jetstream bench-peers peers-test otel-test jetstream-suite leaf-versions bench-contention prove soak account work-soak inflow-soak fuzz nightly dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

run: build ## start the service with a NATS server of its own, data in ./data
	@exec bin/pqbridge -dev

build: ## build the programs into ./bin
	@mkdir -p bin
	go build $(TAG_FLAGS) $(LDFLAGS) -o bin/ ./cmd/pqbridge ./cmd/pq

# Many tests wait, for timeouts or a store, so with few processors twice as many packages are tested at a time, unless GOFLAGS says how many.
PACKAGES = $(if $(filter -p=%,$(GOFLAGS)),,$(shell n=$${GOMAXPROCS:-$$(nproc 2>/dev/null)}; [ "$${n:-9}" -gt 8 ] || echo "-p $$((2 * n))"))
TEST     = go test -timeout $(TIMEOUT) $(PACKAGES) $(TAG_FLAGS) $(RACE_FLAGS) ./...

# A module of its own, because of what drives the browser. Its tests mostly wait, so several run at a time.
DASHBOARD_TEST = cd testenv/dashboard && go test -parallel 4 -timeout $(TIMEOUT) $(RACE_FLAGS)
BROWSER        = $(shell for name in "$$PQ_TEST_CHROMIUM" chromium chromium-browser google-chrome; do command -v "$$name" && break; done)

# What is left out is also named if tests fail.
test: ## run the tests; needs only Go
	@echo '$(TEST)'; \
	$(TEST); status=$$?; \
	if [ -n "$(BROWSER)" ]; then \
		echo '$(DASHBOARD_TEST)'; ($(DASHBOARD_TEST)) || status=1; \
		echo "skipped: TestMeasure and TestShots of testenv/dashboard, which make dashboard-measure and make dashboard-shots run"; \
	else \
		echo "skipped: testenv/dashboard, because there is no Chromium; PQ_TEST_CHROMIUM names one"; \
	fi; \
	if [ -n "$(RACE)" ]; then \
		echo "skipped: two thirds of the tests of queues on Pebble, which the race detector makes check itself, 20 times slower, tests of large messages in other stores than memory, and most rounds of random tests and of those with very many requests; make test runs them"; \
	fi; \
	if [ -z "$(TAGS)" ]; then \
		echo "skipped: tests on FoundationDB, whose headers or a C compiler are not installed"; \
	elif [ -z "$$FDB_CLUSTER_FILE" ] && ! PATH="$$PATH:/usr/sbin" command -v fdbserver >/dev/null; then \
		echo "skipped: tests on a real FoundationDB, because fdbserver is not installed"; \
	fi; \
	command -v nats >/dev/null || echo "skipped: docs/example/shell/nats.sh and testenv/jetstream/shell, because the nats tool is not installed"; \
	[ -n "$$PQ_TEST_NPM" ] || (cd docs/example/javascript && node -p 'require.resolve("@nats-io/jetstream")') >/dev/null 2>&1 || \
		echo "skipped: docs/example/javascript and testenv/jetstream/javascript, because node or their packages are not installed; PQ_TEST_NPM=1 has npm install them"; \
	python3 -c 'import nats' 2>/dev/null || echo "skipped: running docs/example/python and testenv/jetstream/python, because python3 or nats-py is not installed"; \
	command -v rustc >/dev/null || echo "skipped: docs/example/rust, because rustc is not installed"; \
	exit $$status

race: ## run the tests with the race detector; needs a C compiler
	$(MAKE) test RACE=1

# docker or podman, whichever works here.
ENGINE = $(firstword $(foreach engine,docker podman,$(if $(shell $(engine) info >/dev/null 2>&1 && echo yes),$(engine))))
IMAGE  :=
image-test: ## build the container image and test it in docker or podman; IMAGE=<name> tests one that is there
	@if [ -z "$(ENGINE)" ]; then echo "image-test needs docker or podman, and neither works here" >&2; exit 1; fi
	$(if $(IMAGE),,$(ENGINE) build --target embedded -t localhost/pqbridge:test .)
	PQ_TEST_ENGINE=$(ENGINE) PQ_TEST_IMAGE=$(or $(IMAGE),localhost/pqbridge:test) \
		go test -count=1 -timeout 10m -tags image -run '^TestImage' ./cmd/pqbridge

# A module of its own. Vet is off because it would go through all of Helm and Prometheus as well, which takes longer than the tests.
deploy-test: ## check the chart, Grafana's dashboard, rules and workflows; UPDATE=1 writes the golden files
	cd testenv/deploy && go test -vet=off ./... $(if $(UPDATE),-update)

dashboard-test: ## test pq dashboard in Chromium; make test does it too, if there is one
	$(DASHBOARD_TEST) -count=1 -v

dashboard-shots: ## write the screenshots in docs/images
	$(DASHBOARD_TEST) -count=1 -run '^TestShots$$' -shots

ITEMS := 1000000
dashboard-measure: ## measure pq dashboard with ITEMS=1000000 items: first paint, a search, what open tabs cost the bridge
	$(DASHBOARD_TEST) -count=1 -v -run '^TestMeasure$$' -measure $(ITEMS)

check: fmt-check vet staticcheck test ## all that has to pass before a change goes in

fmt: ## format the code
	gofmt -w bridge client cmd docs fdbpq subjects testenv

fmt-check:
	@files=$$(gofmt -l bridge client cmd docs fdbpq subjects testenv); \
	if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi

# The program builds without cgo too. The tests build it with cgo, so what is checked here is the build
# without, and nothing is built twice.
vet:
	CGO_ENABLED=0 go vet ./...
	$(if $(TAGS),go vet $(TAG_FLAGS) ./...)

staticcheck:
	$(if $(TAGS),,CGO_ENABLED=0 )go tool staticcheck $(TAG_FLAGS) ./...

bench: build ## measure the service against a bare echo service; STORE=fdb, BENCH="--seconds 10 ..." for more
	go build $(TAG_FLAGS) -o bin/ ./cmd/pqbench github.com/nats-io/nats-server/v2
	bin/pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server $(if $(STORE),--store $(STORE)) $(BENCH)

bench-jetstream: build ## compare programs that use JetStream's API with the same on JetStream itself; STORE=fdb, BENCH="--seconds 10 ..." for more
	go build $(TAG_FLAGS) -o bin/ ./cmd/pqbench github.com/nats-io/nats-server/v2
	bin/pqbench --pqbridge bin/pqbridge --nats-server bin/nats-server --jetstream $(if $(STORE),--store $(STORE)) $(BENCH)

# A module of its own, because of the client libraries. What is not installed is named and left out; on Debian and Ubuntu
# apt install redis-server beanstalkd postgresql rabbitmq-server has all of it. The packages start servers of their own, which are
# not used: systemctl disable --now redis-server beanstalkd postgresql rabbitmq-server ends them.
bench-peers: build ## compare the service with Redis, PostgreSQL, RabbitMQ, beanstalkd and JetStream, those that are installed; BENCH="--backlog 1000000 ..."
	go build -o bin/ github.com/nats-io/nats-server/v2
	cd cmd/pqbench/peers && go build -o ../../../bin/pqbench-peers .
	bin/pqbench-peers --pqbridge bin/pqbridge --nats-server bin/nats-server $(BENCH)

peers-test: ## vet and test that comparison, with the peers that are installed
	cd cmd/pqbench/peers && go vet ./... && go test -timeout $(TIMEOUT) ./...

otel-test: ## vet and test client/pqotel, a module of its own
	cd client/pqotel && go vet ./... && go test -timeout $(TIMEOUT) $(RACE_FLAGS) ./...

jetstream-suite: ## run nats.go's own tests of JetStream's pull consumers against a bridge; RUN=<regexp> for some of them
	go run ./testenv/jetstream/suite $(if $(RUN),-v -run '$(RUN)')

VERSIONS := v2.10.29 v2.11.17 v2.12.12 v2.14.9
leaf-versions: ## test leaf node connections with other NATS servers, VERSIONS="v2.10.29 ..."; PQ_TEST_NATS_SERVER=<program> go test ./bridge/jetstream/leaf for one
	@set -e; for version in $(VERSIONS); do \
		GOBIN=$(CURDIR)/bin/nats-server-$$version go install github.com/nats-io/nats-server/v2@$$version; \
		echo "nats-server $$version"; \
		PQ_TEST_NATS_SERVER=$(CURDIR)/bin/nats-server-$$version/nats-server go test -count=1 ./bridge/jetstream/leaf; \
	done

bench-contention: ## measure staged pops against the published recipe on a real FoundationDB
	go test -tags fdb -run '^$$' -bench Contention -benchtime 3x -timeout 30m ./fdbpq/staged

prove: ## break systems under load for a short time, with the race detector; SEED=<n> to reproduce a run
	go test $(TAG_FLAGS) -race -count=1 -v -timeout 10m ./testenv/proof -rounds 4 -ops 5000 $(if $(SEED),-seed $(SEED))

DURATION := 10m
soak: ## the same for DURATION=10m without it; SYSTEMS='mem|embedded' or fdb for some of them
	go test $(TAG_FLAGS) -count=1 -v -timeout 0 -run '^TestProof$$/($(SYSTEMS))' ./testenv/proof -duration $(DURATION) $(if $(SEED),-seed $(SEED))

OPS := 100000
account: ## keep accounts of each item: OPS=100000 operations on each system of STORE=embedded, mem or fdb, at most for DURATION
	go test $(TAG_FLAGS) -count=1 -v -timeout 0 -run '^TestAccounts$$/^$(or $(STORE),embedded)' ./testenv/proof -ops $(OPS) \
		$(if $(filter command line,$(origin DURATION)),-duration $(DURATION)) $(if $(SEED),-seed $(SEED))

work-soak: ## have producers push and Workers do jobs for DURATION=10m while bridges and NATS servers are killed; SYSTEMS=embedded or fdb
	go test $(TAG_FLAGS) -count=1 -v -timeout 0 -run '^TestWork$$/($(SYSTEMS))' ./testenv/proof -duration $(DURATION) $(if $(SEED),-seed $(SEED))

inflow-soak: ## draw from a stream and fire schedules for DURATION=10m while everything is broken; SYSTEMS='mem|embedded' or fdb
	go test $(TAG_FLAGS) -count=1 -v -timeout 0 -run '^TestInflow$$/($(SYSTEMS))' ./testenv/proof -duration $(DURATION) $(if $(SEED),-seed $(SEED))

FUZZTIME := 30s
fuzz: ## run each fuzz test for FUZZTIME=30s; what they find is kept as a case under testdata/fuzz
	@set -e; for package in $$(go list $(TAG_FLAGS) ./...); do \
		listed=$$(go test $(TAG_FLAGS) -list '^Fuzz' $$package); \
		for target in $$(echo "$$listed" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test $(TAG_FLAGS) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$package; \
		done; \
	done

ROUNDS := 20
nightly: ## the rounds that check has no time for: random tests ROUNDS=20 times, fuzz tests, other NATS servers, accounts and soaks for DURATION=10m each
	go test $(TAG_FLAGS) -count=$(ROUNDS) -timeout 0 -run 'Random|Race|Concurrent|Linear|Faults|Late' ./bridge/... ./client ./fdbpq/...
	$(MAKE) race
	$(MAKE) fuzz
	$(MAKE) leaf-versions
	$(MAKE) prove
	$(MAKE) account OPS=5000000 DURATION=$(DURATION)
	$(MAKE) soak work-soak DURATION=$(DURATION)

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
dist: ## build the programs of a release, VERSION=v1.2.3, for all PLATFORMS into ./dist
	@test -n "$(VERSION)" || { echo "give the version, as in make dist VERSION=v1.2.3"; exit 1; }
	rm -rf dist
	@set -e; for platform in $(PLATFORMS); do \
		name=pqbridge_$(patsubst v%,%,$(VERSION))_$$(echo $$platform | tr / _); \
		echo "$$name"; \
		mkdir -p dist/$$name; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" \
			-o dist/$$name/ ./cmd/pqbridge ./cmd/pq; \
		cp LICENSE README.md CHANGELOG.md dist/$$name/; \
		tar -C dist -czf dist/$$name.tar.gz --owner=0 --group=0 $$name; \
		rm -r dist/$$name; \
	done

clean: ## remove what was built; ./data stays
	rm -rf bin dist
