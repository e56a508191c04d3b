# make, or make help, lists what there is to do. CONTRIBUTING.md says how long each takes.

# The FoundationDB engine is built where FoundationDB's headers and a C compiler are installed; Go turns cgo off where
# there is no compiler. The tag pebblegozstd leaves out the zstd in C that Pebble brings with cgo and the store never uses.
FDB_HEADER := $(wildcard /usr/include/foundationdb/fdb_c.h /usr/local/include/foundationdb/fdb_c.h)
TAGS       := $(if $(FDB_HEADER),$(if $(filter 1,$(shell go env CGO_ENABLED)),fdb))
TAG_FLAGS  := -tags $(TAGS:%=%,)pebblegozstd
# Set for releases.
VERSION :=
NUMBER  := $(patsubst v%,%,$(VERSION))
LDFLAGS := $(if $(NUMBER),-ldflags "-X main.version=$(NUMBER)")

# What test runs: PKG=./client for one package, RUN=<regexp> for some tests, RACE=1 for the race
# detector, which needs a C compiler.
PKG  := ./...
RUN  :=
RACE :=
# Everything else is built without cgo, as tests and releases are, so nothing is compiled twice.
ifeq ($(TAGS)$(RACE),)
export CGO_ENABLED ?= 0
endif
# How long the tests of one package may take. One that hangs ends then.
TIMEOUT := 15m
# Many tests wait, so with few processors twice as many packages run at a time, unless GOFLAGS says how many.
PACKAGES = $(if $(filter -p=%,$(GOFLAGS)),,$(shell n=$${GOMAXPROCS:-$$(nproc 2>/dev/null)}; \
	[ "$${n:-9}" -gt 8 ] || echo "-p $$((2 * n))"))
# The compiler takes a quarter less processor time if it collects its garbage less often.
BUILD_FLAGS = -toolexec "env GOGC=400"
# The race detector crashes if two threads run timers of a bubble at once (golang/go#78156), so it has one processor
# for each package. It compares the order of events, so it finds races there all the same.
RACE_FLAGS = $(if $(RACE),-race -cpu 1)
# Tests need neither cgo, without which half as much is compiled, nor debug information. make vet has vetted them.
TEST_FLAGS = $(BUILD_FLAGS) -vet=off -ldflags="-s -w" -timeout $(TIMEOUT) $(PACKAGES) $(if $(RUN),-run '$(RUN)')
TEST       = CGO_ENABLED=$(if $(RACE),1,0) go test $(TEST_FLAGS) $(RACE_FLAGS) $(if $(RACE),-tags pebblegozstd)
# The race detector else asks the system for new pages for what it knows of each large block, a fifth of the
# time of tests with large messages, and waits a second at the end of each program.
export GORACE ?= clear_shadow_mmap_threshold=1073741824 atexit_sleep_ms=100
# $(call patiently,doing,command) runs the command, and says every half minute that it does, because the compiler says
# nothing for minutes. What says so ends within a second of the command, or of a kill of this shell.
EVERY := 30
patiently = (trap exit TERM; n=0; while sleep 1; kill -0 $$$$ 2>/dev/null; do \
	n=$$((n + 1)); [ $$((n % $(EVERY))) -ne 0 ] || echo "$(1): $$n s so far"; done) & t=$$!; \
	trap 'kill $$t 2>/dev/null' EXIT; trap 'exit 130' INT TERM; $(2)
# The rounds and engines that test leaves out.
NIGHTLY = PQ_TEST_NIGHTLY=1

.DEFAULT_GOAL := help
.PHONY: help run build dist dist-javascript dist-python dist-java clean check fmt fmt-check vet staticcheck test \
	test-browser test-fdb test-clients test-javascript test-java test-python test-packages java clients rust busy-clients \
	test-modules test-image test-all nightly upgrades soak verify fuzz jetstream-suite celery-suite leaf-versions bench \
	bench-growth bench-peers bench-workers scale shots

help: ## list the targets
	@awk '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { split($$0, part, ":.*## "); printf "  make %-16s %s\n", part[1], part[2] }' Makefile

##@ Use

run: ## start the service and a NATS server, data in ./data
	@[ -x bin/pqbridge ] || echo "building pqbridge and pq: the first time this compiles Pebble and a NATS server, 2 to 6 minutes"
	@$(call patiently,compiling,$(MAKE) --no-print-directory -s build)
	@exec bin/pqbridge -dev

build: ## build the programs into ./bin
	@mkdir -p bin
	go build $(BUILD_FLAGS) $(TAG_FLAGS) $(LDFLAGS) -o bin/ ./cmd/pqbridge ./cmd/pq

# A release of the same commit has the same bytes each time, wherever the checkout is: nothing comes from GOFLAGS, the
# clock, or files that git does not have. A GOFLAGS that is empty would leave what go env -w has set.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DIST      := dist
COMMITTED  = $(or $(shell git log -1 --format=%ct 2>/dev/null),499162500)
DIST_BUILD = CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 go build $(BUILD_FLAGS) -buildvcs=auto
DIST_TEXTS = { git ls-files LICENSE ':(glob)*.md' docs deploy 2>/dev/null || find LICENSE *.md docs deploy -type f; }
dist: ## build a release into ./dist: VERSION=v1.2.3
	@test -n "$(VERSION)" || { echo "give the version, as in make dist VERSION=v1.2.3"; exit 1; }
	rm -rf $(DIST)
	@set -e; for platform in $(PLATFORMS); do \
		name=pqbridge_$(NUMBER)_$$(echo $$platform | tr / _); \
		echo "$$name"; \
		mkdir -p $(DIST)/$$name; \
		export GOOS=$${platform%/*} GOARCH=$${platform#*/} GOFLAGS=-trimpath; \
		$(DIST_BUILD) -ldflags "-s -w -X main.version=$(NUMBER)" -o $(DIST)/$$name/bin/ ./cmd/pqbridge ./cmd/pq; \
		$(DIST_TEXTS) | tar -cf - -T - | tar -xf - -C $(DIST)/$$name; \
		CGO_ENABLED=0 .ci/licenses > $(DIST)/$$name/THIRD-PARTY-LICENSES; \
	done; \
	export SOURCE_DATE_EPOCH=$(COMMITTED); \
	.ci/sbom $(DIST) $(NUMBER) > $(DIST)/pqbridge.spdx.json; \
	.ci/pack $(DIST) $(NUMBER); \
	rm -r $(DIST)/pqbridge_$(NUMBER)_*/

# The packages of the clients have the same bytes each time as well. npm keeps the modes of files.
dist-javascript: ## build the JavaScript client's package into ./dist
	@mkdir -p $(DIST)
	umask 022; cd client/javascript && npm ci && \
		find . -name node_modules -prune -o -type f -exec chmod u=rwX,go=rX {} + && \
		npm pack --pack-destination $(abspath $(DIST))

dist-python: ## build the Python client's packages into ./dist: PYTHON=, with .ci/publish/requirements.txt installed
	SOURCE_DATE_EPOCH=$(COMMITTED) $(PYTHON) -m build --no-isolation --outdir $(abspath $(DIST)) client/python

clean: ## remove build results; ./data stays
	rm -rf bin dist

##@ Check

check: fmt-check vet staticcheck test ## what has to pass before a change goes in

test: ## run the tests; needs only Go: PKG= RUN= RACE=1
	@echo "testing: with an empty build cache this first compiles 500 packages, Pebble and a NATS server among them, for minutes"
	@command -v python3 >/dev/null || echo "left out: the second checker of histories needs python3"
	@$(call patiently,compiling and testing,$(TEST) $(PKG))

fmt: ## format the code
	gofmt -w bridge client cmd docs fdbpq subjects testenv

fmt-check:
	@files=$$(gofmt -l bridge client cmd docs fdbpq subjects testenv); \
	if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi
	@find bridge client cmd docs fdbpq subjects testenv -name '*.go' -exec awk '{ line = $$0; gsub(/\t/, "    ", line); \
		if (length(line) > 100 && line !~ /`[a-z]+:".*`$$/) { print FILENAME ":" FNR ": more than 100 columns, a tab being 4"; wide = 1 } } END { exit wide }' {} +

# Without cgo, as the tests are built, so nothing is compiled twice; with the tests of the image, which else nothing compiles.
vet:
	CGO_ENABLED=0 go vet $(BUILD_FLAGS) -tags image ./...
	PQ_TEST_VET=1 $(TEST) -run '^TestTaggedCodeTypeChecks$$' ./fdbpq/kv/fdbkv
	$(if $(TAGS),go vet $(BUILD_FLAGS) $(TAG_FLAGS) ./...)

staticcheck:
	CGO_ENABLED=0 go tool staticcheck ./...
	$(if $(TAGS),go tool staticcheck $(TAG_FLAGS) ./...)

# A module of its own, because of what drives the browser.
BROWSER      = $(shell for name in "$$PQ_TEST_CHROMIUM" chromium chromium-browser google-chrome; do command -v "$$name" && break; done)
BROWSER_TEST = cd testenv/dashboard && go test -timeout $(TIMEOUT) $(if $(RACE),-race) $(if $(RUN),-run '$(RUN)')
NO_BROWSER   = test-browser needs Chromium or Chrome; PQ_TEST_CHROMIUM names the program
test-browser: ## test pq dashboard in Chromium
	$(if $(BROWSER),$(BROWSER_TEST),@echo "$(NO_BROWSER)"; exit 1)

FDB_LIBRARY = $(firstword $(wildcard /usr/lib/libfdb_c.so /usr/local/lib/libfdb_c.so))
FDB_SERVER = $(shell PATH="$$PATH:/usr/sbin" command -v fdbserver)
NO_FDB     = $(strip $(if $(TAGS),,FoundationDB's client package and a C compiler) $(if $(FDB_SERVER)$(FDB_CLUSTER_FILE),,fdbserver))
FDB_PKG    = ./bridge ./bridge/dispatch ./cmd/pq ./cmd/pqbridge ./docs/example/... ./fdbpq/... ./testenv ./testenv/proof
test-fdb: TIMEOUT = 60m
test-fdb: ## test on FoundationDB: PKG= RUN= RACE=1
	$(if $(NO_FDB),@echo "test-fdb needs $(NO_FDB)"; exit 1,PQ_TEST_FDB=1 go test $(TAG_FLAGS) $(TEST_FLAGS) \
		$(RACE_FLAGS) $(if $(filter-out ./...,$(PKG)),$(PKG),$(FDB_PKG)))
	@# Once more with a second client library, as in an upgrade of FoundationDB.
	$(if $(filter ./...,$(PKG)),set -e; folder=$$(mktemp -d); trap "rm -r $$folder" EXIT; \
		cp $(FDB_LIBRARY) $$folder/libfdb_c_second.so; \
		FDB_NETWORK_OPTION_EXTERNAL_CLIENT_DIRECTORY=$$folder PQ_TEST_FDB=1 go test $(TAG_FLAGS) $(TEST_FLAGS) -count=1 \
			./fdbpq/kv/fdbkv)

NODE_20 = node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && command -v npm >/dev/null
NO_NODE = Node.js 20 or newer, and npm with its registry
JAVASCRIPT = client/javascript/dist/index.js
$(JAVASCRIPT): $(wildcard client/javascript/src/*.ts) client/javascript/package-lock.json client/javascript/tsconfig.json
	cd client/javascript && npm ci && npm run build

# NODE='npx -y -p node@latest node' is the newest Node.js, from npm, beside the one that builds.
NODE := node
test-javascript: ## test the JavaScript client: NODE=
	@$(NODE_20) || { echo "test-javascript needs $(NO_NODE)"; exit 1; }
	@mkdir -p bin
	go build $(BUILD_FLAGS) $(TAG_FLAGS) -o bin/ ./cmd/pqbridge ./cmd/pq github.com/nats-io/nats-server/v2
	$(MAKE) --no-print-directory -B $(JAVASCRIPT)
	cd client/javascript && PQBRIDGE=$(CURDIR)/bin/pqbridge NATS_SERVER=$(CURDIR)/bin/nats-server \
		$(NODE) --test --test-timeout=240000 test/*.test.mjs

# Any Python from 3.10 on, and a virtual environment with the package and all that its tests need.
PYTHON      := python3
PYTHON_ENV  := $(CURDIR)/bin/python
PYTHON_310   = $(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
NO_PYTHON    = Python 3.10 or later with its modules venv and ensurepip (on Debian: python3-venv), and PyPI
PIP_INSTALL  = $(PYTHON_ENV)/bin/pip install --quiet --disable-pip-version-check
$(PYTHON_ENV)/installed: client/python/requirements-dev.txt client/python/pyproject.toml
	$(PYTHON) -m venv $(PYTHON_ENV)
	$(PIP_INSTALL) -r client/python/requirements-dev.txt
	$(PIP_INSTALL) --no-deps --no-build-isolation -e client/python
	touch $@

# The oldest nats-py that the package takes, in a folder that goes before the newest.
OLD_NATS_PY = $(PYTHON_ENV)/nats-py-2.9.0
OLD_SHA256  = 01886eb9e0a87f0ec630652cf1fae65d2a8556378a609bc6cc07d2ea60c8d0dd
$(OLD_NATS_PY): $(PYTHON_ENV)/installed
	echo "nats-py==2.9.0 --hash=sha256:$(OLD_SHA256)" | $(PIP_INSTALL) --no-deps --target $@ -r /dev/stdin

# With PYTHON all checks and tests, and the tests once more with that nats-py and without what Python lacks on Windows; then
# the tests with each other version that is here, or that PYTHONS names. RUN= chooses tests as pytest's -k does. Those of
# Celery mostly wait for its processes, so four run at once.
PYTHONS = $(shell .ci/pythons)
PYTEST  = pytest -q -rs $(if $(RUN),-k '$(RUN)') --ignore-glob '*/test_celery*'
CELERY  = pytest -q -rs $(if $(RUN),-k '$(RUN)') -n 4 tests/test_celery.py tests/test_celery_worker.py
OR_NONE = || [ $$? -eq 5 ]
test-python: ## check and test the Python package: PYTHON= PYTHONS= RUN=
	@$(PYTHON_310) || { echo "test-python needs $(NO_PYTHON); PYTHON= names another one"; exit 1; }
	@mkdir -p bin
	go build $(BUILD_FLAGS) $(TAG_FLAGS) -o bin/ ./cmd/pqbridge ./cmd/pq github.com/nats-io/nats-server/v2
	$(MAKE) --no-print-directory $(PYTHON_ENV)/installed $(OLD_NATS_PY)
	cd client/python && PATH="$(PYTHON_ENV)/bin:$$PATH" && set -e && \
		ruff check && ruff format --check && mypy && \
		{ $(PYTEST) $(OR_NONE); } && { $(CELERY) $(OR_NONE); } && \
		{ PYTHONPATH=$(OLD_NATS_PY) PQ_TEST_WINDOWS=1 $(PYTEST) --ignore tests/test_docs.py \
			--ignore tests/test_package.py $(OR_NONE); }
	@set -e; version='import sys; print("%d.%d" % sys.version_info[:2])'; tested=$$($(PYTHON) -c "$$version"); \
	for python in $(PYTHONS); do \
		v=$$($$python -c "$$version"); [ "$$v" != "$$tested" ] || continue; \
		echo "Python $$v"; \
		$(MAKE) --no-print-directory $(PYTHON_ENV)-$$v/installed PYTHON=$$python PYTHON_ENV=$(PYTHON_ENV)-$$v; \
		(cd client/python && PATH="$(PYTHON_ENV)-$$v/bin:$$PATH" && \
			{ $(PYTEST) $(OR_NONE); } && { $(CELERY) $(OR_NONE); }); \
	done

# Any Java from 17 on, and Maven. JAVA names the one that runs the driver, whose classes are loaded once for all its runs.
JAVA        := java
JAVA_17      = command -v mvn >/dev/null && command -v "$(JAVA)" >/dev/null && [ "$$($(JAVA) -version 2>&1 | sed -n '1s/[^"]*"\([0-9]*\).*/\1/p')" -ge 17 ]
NO_JAVA      = Java 17 or later, Maven, and Maven Central
JAVA_HOME_OF = $(shell $(JAVA) -XshowSettings:properties -version 2>&1 | sed -n 's/ *java.home = //p')
JAVA_DRIVER := client/java/driver/target/driver.jar
JAVA_SOURCES = $(shell find client/java/client client/java/jackson client/java/driver -path '*/target' -prune -o \( -name '*.java' -o -name pom.xml \) -print) \
	client/java/pom.xml
$(JAVA_DRIVER): $(JAVA_SOURCES)
	cd client/java && $(MVN) -pl driver -am -DskipTests package
	cd $(@D) && { cat "$(JAVA_HOME_OF)/lib/classlist"; for jar in driver.jar lib/pqbridge-client-*.jar lib/jnats-*.jar; do jar tf $$jar; done | \
		sed -n 's/\.class$$//p'; } >classes.txt && $(JAVA) -Xshare:dump -XX:SharedClassListFile=classes.txt \
		-XX:SharedArchiveFile=driver.jsa -XX:+UseSerialGC -Xlog:disable -cp $(CURDIR)/$@

MVN        = mvn -B -q
JAVA_LIBRARIES = $(CURDIR)/bin/java
java: ## build the modules for Java into the local Maven repository, and jars for examples into ./bin/java
	@$(JAVA_17) || { echo "java needs $(NO_JAVA)"; exit 1; }
	rm -rf $(JAVA_LIBRARIES)
	cd client/java && $(MVN) -pl '!sample,!driver' -Dmaven.test.skip -Dmaven.javadoc.skip install && \
		$(MVN) -pl client,jackson org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy-dependencies \
			-DincludeScope=runtime -DoutputDirectory=$(JAVA_LIBRARIES) && \
		cp client/target/pqbridge-client-?.*[0-9].jar jackson/target/pqbridge-jackson-?.*[0-9].jar $(JAVA_LIBRARIES)

# Publishes to a folder, as a release does to Maven Central: jars, sources and Javadoc, which must have no warnings.
DEPLOY = -DaltDeploymentRepository=local::file:$(CURDIR)/bin/maven deploy
# All checks and tests of the modules with one JDK, and their tests with each other one that is here.
JDKS = $(or $(sort $(patsubst %/bin/javac,%,$(wildcard $(JAVA_HOME)/bin/javac /usr/lib/jvm/*-2[0-9]-*/bin/javac \
	/usr/lib/jvm/*-1[7-9]-*/bin/javac))),$(JAVA_HOME_OF))
# What tests print is in target/surefire-reports of their module.
JAVA_TEST = -Dmaven.test.redirectTestOutputToFile $(if $(RUN),-Dtest='$(RUN)' -Dsurefire.failIfNoSpecifiedTests=false)
test-java: ## check and test the modules for Java: JDKS= RUN=
	@$(JAVA_17) || { echo "test-java needs $(NO_JAVA)"; exit 1; }
	@mkdir -p bin
	go build $(BUILD_FLAGS) $(TAG_FLAGS) -o bin/ ./cmd/pqbridge ./cmd/pq github.com/nats-io/nats-server/v2
	$(if $(NO_FDB),@echo "test-java leaves out what needs $(NO_FDB)")
	@rm -rf bin/maven
	cd client/java && set -e; goal="$(DEPLOY)"; for jdk in $(JDKS); do \
		echo "$$jdk"; $(if $(NO_FDB),PQ_TEST_FDB=0) JAVA_HOME=$$jdk $(MVN) $(JAVA_TEST) $$goal; goal=test; done

# Jars keep the modes of files too, and have the same bytes with the same JDK.
dist-java: ## build what is published of the modules for Java into ./bin/maven
	rm -rf bin/maven
	umask 022; cd client/java && chmod -R u=rwX,go=rX . && $(MVN) -DskipTests $(DEPLOY)

# Not trimmed, so that nothing is compiled again for this.
PACKAGES_OF = $(CURDIR)/bin/packages
test-packages: ## test the packages of the programs for PyPI and npm
	@$(NODE_20) || { echo "test-packages needs $(NO_NODE)"; exit 1; }
	@$(PYTHON_310) || { echo "test-packages needs $(NO_PYTHON); PYTHON= names another one"; exit 1; }
	$(MAKE) --no-print-directory $(PYTHON_ENV)/installed
	$(MAKE) --no-print-directory dist VERSION=v0.0.0 DIST=$(PACKAGES_OF) PLATFORMS=$$(go env GOOS)/$$(go env GOARCH)
	PATH="$(PYTHON_ENV)/bin:$$PATH" PQ_TEST_PACKAGES=$(PACKAGES_OF) $(TEST) -count=1 -v -run '^TestPackages' ./cmd/pqbridge

# The clients in other languages are built if they can be. Without npm, PyPI or Maven Central their tests say what is missing, or fail
# with PQ_TEST_CLIENTS=all. The examples find packages there.
NO_CLIENTS = $(strip $(foreach program,node python3 java mvn cargo nats,$(if $(shell command -v $(program)),,$(program))))
NODE_PATH ?= $(CURDIR)/client/javascript/node_modules
CLIENTS    = PATH="$(PYTHON_ENV)/bin:$$PATH" PQ_TEST_PYTHON="$(PYTHON_ENV)/bin/python" PQ_TEST_JAVA="$(JAVA)" NODE_PATH="$(NODE_PATH)" PQ_TEST_CLIENTS=$(or $(PQ_TEST_CLIENTS),1)
test-clients: clients rust ## test clients, pages and examples in other languages: RUN=
	$(if $(NO_CLIENTS),@echo "test-clients leaves out what needs $(NO_CLIENTS)")
	@mkdir -p bin
	@{ $(CLIENTS) $(TEST) -v ./docs/example ./testenv/clients ./testenv/jetstream; status=$$?; \
		$(if $(RUN),,$(CLIENTS) $(TEST) -v -run '^TestGuide$$' ./cmd/pqbridge || status=$$?;) } >bin/clients.txt 2>&1; \
		grep -vE '^=== ' bin/clients.txt; exit $$status

clients:
	@{ $(NODE_20) && $(MAKE) --no-print-directory $(JAVASCRIPT); } || echo "left out: the JavaScript client needs $(NO_NODE)"
	@{ $(PYTHON_310) && $(MAKE) --no-print-directory $(PYTHON_ENV)/installed; } || echo "left out: the Python client needs $(NO_PYTHON)"
	@{ $(JAVA_17) && $(MAKE) --no-print-directory $(JAVA_DRIVER); } || echo "left out: the Java client needs $(NO_JAVA)"

# The programs in Rust have the same crates, which are compiled once.
CARGO_BUILD = CARGO_PROFILE_DEV_DEBUG=false cargo build --locked --quiet --target-dir bin/rust --manifest-path
rust:
	@rm -f bin/rust/debug/pqbridge-*
	@{ command -v cargo >/dev/null && $(CARGO_BUILD) docs/example/rust/Cargo.toml && \
		$(CARGO_BUILD) testenv/jetstream/rust/Cargo.toml; } || \
		echo "left out: the programs in Rust need cargo of Rust 1.89 or newer, a C compiler, and crates.io"

# The table of behaviour beside busy loops, as many as there are processors unless LOOPS says otherwise.
TABLES := 20
LOOPS   = $(shell nproc)
busy-clients: clients
	@loops=; trap 'kill $$loops' EXIT; for i in $$(seq $(LOOPS)); do (while :; do :; done) & loops="$$loops $$!"; done; \
		$(CLIENTS) $(TEST) -count=$(TABLES) ./testenv/clients

# Vet is off in deploy because it would go through all of Helm and Prometheus, which takes longer than the tests.
UPDATE :=
test-modules: ## test the modules beside this one; UPDATE=1: golden files
	cd testenv/deploy && go test -vet=off ./... $(if $(UPDATE),-update)
	cd client/pqotel && go vet ./... && go test -timeout $(TIMEOUT) $(RACE_FLAGS) ./...
	cd testenv/peers && go vet ./... && go test -timeout $(TIMEOUT) ./...

# docker or podman, whichever works here.
ENGINE = $(firstword $(foreach engine,docker podman,$(if $(shell $(engine) info >/dev/null 2>&1 && echo yes),$(engine))))
IMAGE  :=
test-image: ## build the container image and test it: IMAGE=
	@if [ -z "$(ENGINE)" ]; then echo "test-image needs docker or podman, and neither works here"; exit 1; fi
	$(if $(IMAGE),,$(ENGINE) build --target embedded -t localhost/pqbridge:test .)
	PQ_TEST_ENGINE=$(ENGINE) PQ_TEST_IMAGE=$(or $(IMAGE),localhost/pqbridge:test) \
		go test -count=1 -timeout 10m -tags image -run '^TestImage' ./cmd/pqbridge

test-all: test test-clients test-modules ## all of these that can run here
	@if $(NODE_20) && $(PYTHON_310); then $(MAKE) test-packages; else echo "left out: test-packages needs npm and Python"; fi
	@$(if $(BROWSER),$(MAKE) test-browser,echo "left out: $(NO_BROWSER)")
	@$(if $(NO_FDB),echo "left out: test-fdb needs $(NO_FDB)",$(MAKE) test-fdb)
	@$(if $(ENGINE),$(MAKE) test-image,echo "left out: test-image needs docker or podman")

##@ Break

# TESTED is Proof (histories), Accounts (of each item; OPS=1000000), Outcomes (of each job, likewise), Work (Workers),
# Joins (of OPS= members), Inflow (sources and schedules) or Upgrade (accounts with bridges of the revision
# PQ_TEST_BEFORE, and of this checkout).
# Without it, this is all that a release has to survive: it takes hours, and goes on where it stopped.
MINUTES  := 0
DURATION := 10m
TESTED   :=
SYSTEMS  := .
soak: ## break systems for MINUTES=, JOBS=4 at once; or one test: TESTED= DURATION= SYSTEMS= RACE=1 SEED=
	$(if $(TESTED),$(NIGHTLY) go test $(TAG_FLAGS) $(if $(RACE),-race) -count=1 -v -timeout 0 \
		-run '^Test$(TESTED)$$/$(SYSTEMS)' ./testenv/proof \
		-duration $(DURATION) $(if $(OPS),-ops $(OPS)) $(if $(SEED),-seed $(SEED)) $(if $(KEEP),-keep $(abspath $(KEEP))),\
		.ci/soak $(MINUTES))

# The test runs on its own, not below go test, so that it says now and then how far it is.
VERIFY_FLAGS = -test.run '^TestVerify$$' -test.timeout 0 -calm -duration $(or $(filter-out 0,$(MINUTES)),60)m \
	$(if $(SEED),-seed $(SEED)) $(if $(KEEP),-keep $(abspath $(KEEP)))
verify: ## check the promises on all systems, while they break, for an hour or MINUTES=: SEED= KEEP=
	@case "$(MINUTES)$(SEED)" in *[!0-9]*) echo "MINUTES= and SEED= are whole numbers"; exit 1; esac
	$(if $(NO_FDB),@echo "left out: FoundationDB needs $(NO_FDB)")
	@mkdir -p bin
	@$(call patiently,compiling,$(if $(NO_FDB),$(TEST),go test $(TAG_FLAGS) $(TEST_FLAGS)) -c -o bin/proof.test ./testenv/proof)
	cd testenv/proof && $(NIGHTLY) $(CURDIR)/bin/proof.test $(VERIFY_FLAGS)

# A number of runs, not a time: go test fails now and then when the time is up on a busy machine.
FUZZTIME := 20000x
fuzz: ## run each fuzz test FUZZTIME=20000x times
	@set -e; for package in $$(go list $(TAG_FLAGS) ./...); do \
		listed=$$(go test $(TAG_FLAGS) -list '^Fuzz' $$package); \
		for target in $$(echo "$$listed" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test $(TAG_FLAGS) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$package; \
		done; \
	done

jetstream-suite: ## run nats.go's tests of pull consumers on a bridge: RUN=
	go run ./testenv/jetstream/suite $(if $(RUN),-run '$(RUN)')

# Fetches the source distributions of kombu and Celery once. RUN=kombu or RUN=celery runs one of them.
NO_REDIS = $(if $(shell command -v redis-server),,redis-server)
celery-suite: ## run kombu's and Celery's own tests on a bridge: RUN=
	$(if $(NO_REDIS),@echo "celery-suite needs $(NO_REDIS)"; exit 1)
	@mkdir -p bin
	go build $(BUILD_FLAGS) $(TAG_FLAGS) -o bin/ ./cmd/pqbridge
	$(MAKE) --no-print-directory $(PYTHON_ENV)/installed
	$(PIP_INSTALL) -r client/python/suite/requirements.txt
	$(PYTHON_ENV)/bin/python client/python/suite/run.py $(RUN)

VERSIONS := v2.10.29 v2.11.17 v2.12.12 v2.14.9
leaf-versions: ## test leaf connections with the NATS servers VERSIONS=
	@set -e; for version in $(VERSIONS); do \
		GOBIN=$(CURDIR)/bin/nats-server-$$version go install github.com/nats-io/nats-server/v2@$$version; \
		echo "nats-server $$version"; \
		PQ_TEST_NATS_SERVER=$(CURDIR)/bin/nats-server-$$version/nats-server go test -count=1 ./bridge/jetstream/leaf; \
	done

# What a night is compared with: the last release, and until there is one, the revision of the clients in the soak that
# docs/reliability.md has. Compared with the day before, what gets slower in small steps would always pass.
LAST   = $(or $(shell git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null),08c63d3e)
# Stores from before 3d45991f are refused; this is the last revision without joins.
STORED = $(or $(filter v%,$(LAST)),27a70031)
upgrades:
	PQ_TEST_BEFORE=$(STORED) $(MAKE) soak TESTED='(Upgrade|RollBackOfJoins)' SYSTEMS='$(if $(NO_FDB),embedded,.)'

ROUNDS := 5
nightly: ## tests that take hours or depend on chance: ROUNDS= DURATION= FUZZTIME=
	$(NIGHTLY) $(MAKE) test TIMEOUT=60m
	$(NIGHTLY) $(TEST) -timeout 0 -count=$(ROUNDS) -run 'Random|Race|Concurrent|Linear|Faults|Late|Model' ./bridge/... ./client ./fdbpq/...
	$(MAKE) test RACE=1 TIMEOUT=60m
	$(MAKE) fuzz
	$(MAKE) busy-clients TIMEOUT=60m
	PQ_TEST_BEFORE=$(LAST) $(MAKE) test-clients RUN='^TestBefore$$'
	$(MAKE) leaf-versions
	$(if $(NO_REDIS),@echo "left out: celery-suite needs $(NO_REDIS)",$(MAKE) celery-suite)
	$(MAKE) soak TESTED=Accounts SYSTEMS=embedded OPS=5000000
	$(MAKE) soak TESTED=Outcomes OPS=50000
	$(MAKE) soak TESTED=Proof
	$(MAKE) soak TESTED=Work
	$(MAKE) soak TESTED=Joins OPS=100000
	$(MAKE) soak TESTED=Inflow
	$(MAKE) upgrades
	$(MAKE) verify MINUTES=10
	$(MAKE) jetstream-suite
	$(if $(NO_FDB),,$(MAKE) bench STORE=fdb TURNS=1 SECONDS=0.1)
	$(MAKE) bench AGAINST=$(LAST) TURNS=10 SECONDS=1

##@ Measure

# PQBRIDGE is the build to measure, by default of this checkout. AGAINST is another build, or a tag or revision to build,
# which is measured in turns with it; a ratio is PQBRIDGE's figure divided by AGAINST's. BENCH chooses workloads, a regular
# expression; FLAGS are more flags, such as -clients=32 -size=10240 -groups=1000 -queues=100. The data go below TMPDIR: that
# has to be on the kind of disk that the service will use.
PQBRIDGE = $(CURDIR)/bin/pqbridge
AGAINST :=
STORE   := embedded
BENCH   := .
TURNS   := 6
SECONDS := 2
FLAGS   :=
COMMIT = $(shell git rev-parse --verify --quiet '$(AGAINST)^{commit}' 2>/dev/null)
OTHER  = $(if $(AGAINST),$(or $(wildcard $(AGAINST)),bin/against/$(or $(COMMIT),unknown)))
BENCH_TMP  = $(or $(TMPDIR),$(CURDIR)/bin)
BENCH_TEST = TMPDIR=$(BENCH_TMP) $(if $(filter fdb,$(STORE)),go test $(TAG_FLAGS) $(TEST_FLAGS),$(TEST)) -timeout 0 -run '^$$'
define MEASURE
	$(BENCH_TEST) -bench '$(1)/$(BENCH)' -benchtime 1x -count $(TURNS) ./cmd/pq/internal/load -store $(STORE) \
		-pqbridge $(abspath $(PQBRIDGE)) $(if $(AGAINST),-against $(abspath $(OTHER))) -seconds $(SECONDS) $(FLAGS) | tee bin/bench.txt
	@grep -q '^PASS' bin/bench.txt && go tool benchstat bin/bench.txt
endef
bench: build $(OTHER) ## measure the service, and fail if slower than AGAINST=: STORE= BENCH= TURNS= SECONDS=
	$(call MEASURE,Service)
	$(if $(AGAINST),@go run ./testenv/slower bin/bench.txt)

bench-growth: build $(OTHER) ## measure how costs grow: BENCH=queues, and the rest as for bench
	$(call MEASURE,Growth)

bin/against/unknown:
	@echo "AGAINST=$(AGAINST) is neither a program nor a revision that git has here"; exit 1

# With the flags of this checkout, so that only the source differs.
bin/against/%:
	@mkdir -p $(@D)
	@set -e; source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; \
	git archive $* | tar -xf - -C "$$source"; \
	cd "$$source"; go build $(BUILD_FLAGS) $(TAG_FLAGS) -o $(CURDIR)/$@ ./cmd/pqbridge

scale: build ## measure what docs/scale.md goes by, on FoundationDB: BENCH=
	$(if $(NO_FDB),@echo "scale needs $(NO_FDB)"; exit 1,go build $(BUILD_FLAGS) -o bin/ github.com/nats-io/nats-server/v2)
	TMPDIR=$(BENCH_TMP) go test $(TAG_FLAGS) $(TEST_FLAGS) -timeout 0 -run '^$$' -bench 'Counts|Scale/$(BENCH)' -benchtime 1x \
		./testenv/scale -pqbridge $(abspath $(PQBRIDGE)) -nats-server $(CURDIR)/bin/nats-server | tee bin/scale.txt

# Queues that are not installed are named and left out. On Debian and Ubuntu
# apt install redis-server beanstalkd postgresql rabbitmq-server installs all of them. The benchmark does not use the servers
# that these packages start: systemctl disable --now redis-server beanstalkd postgresql rabbitmq-server ends them.
QUEUES := .
bench-peers: ## measure other queues beside it: QUEUES= BENCH= TURNS= SECONDS=
	@mkdir -p bin
	cd testenv/peers && TMPDIR=$(BENCH_TMP) go test -timeout 0 -run '^$$' -bench 'Queues/round/op=($(BENCH))/queue=($(QUEUES))' \
		-benchtime $(SECONDS)s . -rounds $(TURNS) $(FLAGS) | tee $(CURDIR)/bin/peers.txt
	@grep -q '^PASS' bin/peers.txt && go tool benchstat -row /op -col /queue -ignore /round bin/peers.txt

# An empty handler, 64 jobs at once, one process; and 64 pushes, and calls, at once.
bench-workers: build clients ## measure workers, pushes and calls in four languages: PQBRIDGE= TURNS=
	$(CLIENTS) PQ_TEST_JAVAS="$(JDKS:%=%/bin/java)" TMPDIR=$(BENCH_TMP) $(TEST) -timeout 0 -run '^$$' -bench Workers -benchtime 1x -count $(TURNS) \
		./testenv/clients -pqbridge $(abspath $(PQBRIDGE)) $(FLAGS) | tee bin/workers.txt
	@grep -q '^PASS' bin/workers.txt && go tool benchstat -row /op,/language bin/workers.txt

shots: ## write the screenshots in docs/images
	$(BROWSER_TEST) -count=1 -run '^TestShots$$' -shots
