# The commands of this project; `make` lists them. What they need is installed when it is missing
# (tests/setup); tools run at pinned versions from the module cache, so go.mod is free of them.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
GOFUMPT     := mvdan.cc/gofumpt@v0.11.0

# More arguments for the program behind a target: make test/pg18 ARGS='-run TestHit -v'
ARGS ?=

# Packages whose goroutines share memory. Those under tests/ meet in the database instead, of which
# the race detector sees nothing.
RACE ?= ./pgclient/... ./internal/... ./cmd/...

# A hung test should end here, with its stacks, and not at CI's limit.
GOTEST := go test -count=1 -timeout=10m

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SILENT:
MAKEFLAGS += --no-print-directory

# ask is the answer of a script in tests/setup. When one fails, its one line is the last thing
# printed: make's own "Error 1" after it would only hide what to do.
ask = $(eval answer := $$(shell DIE_FD=1 tests/setup/$(1)))$(if $(filter 0,$(.SHELLSTATUS)),$(answer),$(error $(answer)))

# git does not describe a clone that another user owns (root in yours), and go build then fails.
buildvcs = $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

.PHONY: help
help: ## List the targets
	awk -F ':.*## ' '/^[a-z0-9\/]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: setup/demo build ## See it work: a private server, four replicas, one of them killed
	bin/limitctl demo $(ARGS)

.PHONY: build
build: ## Build bin/limitctl
	go build -buildvcs=$(buildvcs) -o bin/limitctl ./cmd/limitctl

.PHONY: test
test: setup/test lint test/model test/system test/second test/proxy test/race ## Lint, tests on this system's PostgreSQL and on 18, race detector
	echo '== all tests passed'

.PHONY: test/system
test/system: setup/test ## The tests on this system's PostgreSQL, or on PGLIMIT_TEST_DATABASE_URL
	$(call on,$(PGLIMIT_PG_BIN))
	$(GOTEST) -skip '^TestModel$$' $(ARGS) ./...

# Apart from the others, for it takes all there is of the processors.
.PHONY: test/model
test/model: setup/test ## The model of the permits, every interleaving
	$(GOTEST) $(ARGS) ./tests/model

# The second version of `make test`: 18, or the oldest supported where the system's is 18 already.
.PHONY: test/second
test/second: setup/test
ifdef PGLIMIT_TEST_DATABASE_URL
	echo '== only there: other versions have servers of their own (make test/matrix)'
else
	$(call test-major,$(if $(filter 18%,$(call version,$(PGLIMIT_PG_BIN))),15,18))
endif

.PHONY: test/matrix
test/matrix: test/pg15 test/pg16 test/pg17 test/pg18 ## The tests on every supported version

test/pg18: ## The tests on one version: test/pg15, test/pg16, test/pg17, test/pg18
.PHONY: test/pg15 test/pg16 test/pg17 test/pg18
test/pg15 test/pg16 test/pg17 test/pg18: test/pg%: setup/test
	$(call test-major,$*)

# A module of its own: its proxy is no dependency of those who use the client.
.PHONY: test/proxy
test/proxy: setup/test ## The client across a proxy that loses replies
	$(call on,$(PGLIMIT_PG_BIN),through a proxy)
	cd tests/lostreply && $(GOTEST) $(ARGS) ./...

.PHONY: test/race
test/race: setup/test ## The client's tests under the race detector
	$(call on,$(PGLIMIT_PG_BIN),with the race detector)
	$(GOTEST) -race $(ARGS) $(RACE)

.PHONY: lint
lint: setup/test ## go vet, staticcheck, gofumpt, the rules of sql/, plpgsql_check
	go vet ./...
	go run $(STATICCHECK) ./...
	cd tests/lostreply && go vet ./... && go run $(STATICCHECK) ./...
	files=$$(go run $(GOFUMPT) -l .) && [ -z "$$files" ] || { printf 'not formatted, type make fmt:\n%s\n' "$$files"; exit 1; }
	go test ./tests/lint

.PHONY: fmt
fmt: ## Format the Go files
	go run $(GOFUMPT) -w .

.PHONY: bench
bench: setup/bench ## Measure the ratios of docs/performance.md; ARGS=-help lists its options
	go build -o bin/bench ./tests/bench
	bin/bench $(ARGS)

.PHONY: replay
replay: setup/replay ## Play an access log from four processes and check the counts: LOG=access.log
	go build -o bin/replay ./tests/replay
	bin/replay $(ARGS) '$(LOG)'

.PHONY: clean
clean: ## Remove what was built and fetched here
	rm -rf bin dist .cache

# Each setup target finds the binaries for the targets after it, and installs what those lack.
.PHONY: setup/demo setup/test setup/bench setup/replay
setup/demo:
	$(call find,)
setup/test:
	$(if $(PGLIMIT_TEST_DATABASE_URL),,$(call find,lint cc npm pgbouncer spin))
setup/bench:
	$(call find,pgbench)
setup/replay:
	$(if $(LOG),,$(error which log? make replay LOG=access.log))
	$(if $(DATABASE_URL),,$(call find,))

find = $(eval export PGLIMIT_PG_BIN := $(call ask,system.sh $(1)))
version = $(shell '$(1)/postgres' --version | awk '{print $$3}')
on = echo '== $(if $(PGLIMIT_TEST_DATABASE_URL),tests on PGLIMIT_TEST_DATABASE_URL,tests on PostgreSQL $(call version,$(1)))$(if $(2), $(2))'

# plpgsql_check and pg_dump come with the distribution's version only; the model knows no version.
define test-major
$(eval bin := $(call ask,major.sh $(1)))
$(eval override PGLIMIT_TEST_DATABASE_URL :=)
$(call on,$(bin))
PGLIMIT_PG_BIN='$(bin)' $(GOTEST) -skip '^(TestPlpgsqlCheck|TestModel|TestCheckAfterRestore|TestDumps)$$' $(ARGS) ./...
endef
