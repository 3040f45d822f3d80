# What builds and checks nodekeeper. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

include project.mk

COUNT ?= 1
# How often, and not how long: a time limit fails now and then by itself before Go 1.27 (go.dev/issue/75804).
FUZZTIME ?= 300000x
# A test run that takes longer hangs. Repeats, which go test counts together, and runs in another cluster get more: see e2e.
TIMEOUT ?= 20m
# How many packages are tested at a time: most of the time the larger ones wait.
PACKAGES ?= 3

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
VERSION_PACKAGE := $(MODULE)/internal/daemon/version
# What a program is told of its build: no date and no path, so that the same commit gives the same bytes.
STAMP := -X $(VERSION_PACKAGE).Version=$(VERSION) -X $(VERSION_PACKAGE).commit=$(COMMIT)

# Most of what is compiled for the programs is compiled for tests and linters, too: once, if it is compiled in the same way.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

# The module at the root has the three products, with those of their tests that need no other dependencies. What only tests or tooling
# need is in nested modules, which reach the products by a replace directive. A go.work of yours does not change what is built here.
MODULES := $(patsubst %/,%,$(dir go.mod $(wildcard */go.mod */*/go.mod)))
export GOWORK := off
# $(call each,MODULES,COMMAND) runs the command in each $$module, and fails at the end if any failed.
each = failed=; for module in $(1); do echo "--- module $$module"; (cd $$module && $(2)) || failed="$$failed $$module"; done; \
	[ -z "$$failed" ] || { echo "failed in:$$failed" >&2; exit 1; }

# What test and lint look at: the label keeper, the two other products, and what checks the repository itself.
ALL_PRODUCTS := keeper sharding placement repository
PRODUCT ?= $(ALL_PRODUCTS)
ifneq ($(filter-out $(ALL_PRODUCTS),$(PRODUCT)),)
$(error PRODUCT=$(PRODUCT): choose from $(ALL_PRODUCTS))
endif
# The packages of each product in the module at the root, and its modules.
PACKAGES_repository := ./test/reference/... ./test/repository/...
PACKAGES_sharding := ./sharding/...
PACKAGES_placement := ./placement/...
PACKAGES_keeper := ./cmd/... ./internal/... $(filter-out $(PACKAGES_repository) $(patsubst %/go.mod,./%/...,$(wildcard test/*/go.mod)),$(patsubst %/,./%/...,$(wildcard test/*/)))
MODULES_repository := hack hack/controlplane
MODULES_keeper := test/helm test/robustness
# Of all charts.
MODULES_sharding := test/helm
MODULES_placement := test/helm
# Modules whose tests have a target of their own.
LINT_MODULES_keeper := test/browser test/monitoring
# The chosen ones.
packages := $(foreach product,$(PRODUCT),$(PACKAGES_$(product)))
modules := $(sort $(foreach product,$(PRODUCT),$(MODULES_$(product))))
# $(call hack,NAME) is the program hack/NAME, which works in the root of the repository.
hack = go -C hack build -o $(CURDIR)/bin/hack/ ./$(1) && bin/hack/$(1)

TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
# -w omits debug information, which takes a quarter of the time to link the binary of a test.
GO_TEST_FLAGS = -ldflags=-w -shuffle=on -p=$(PACKAGES) -timeout=$(TIMEOUT)
GO_TEST = go test $(GO_TEST_FLAGS)

# The control plane of the tests: $KUBEBUILDER_ASSETS if that is set, else what hack/controlplane downloads or builds.
# KUBE=1.30: in any case the one of that release of Kubernetes, of those in hack/controlplane/kubernetes.sum.
KUBE ?=
CONTROLPLANE_DIR := bin/controlplane$(addprefix -,$(KUBE))
CONTROLPLANE_PROGRAMS := $(addprefix $(CONTROLPLANE_DIR)/,kubectl etcd kube-apiserver)
ifneq ($(KUBE),)
KUBEBUILDER_ASSETS :=
endif
ifeq ($(strip $(KUBEBUILDER_ASSETS)),)
CONTROLPLANE_READY := $(CONTROLPLANE_DIR)/kube-apiserver
KUBEBUILDER_ASSETS := $(CURDIR)/$(CONTROLPLANE_DIR)
else
KUBEBUILDER_ASSETS := $(abspath $(KUBEBUILDER_ASSETS))
endif
export KUBEBUILDER_ASSETS

# Tests run in the directory of their package, where a relative path would lead elsewhere.
ifneq ($(strip $(E2E_KUBECONFIG)),)
override E2E_KUBECONFIG := $(abspath $(E2E_KUBECONFIG))
export E2E_KUBECONFIG
endif

.PHONY: help
help: # list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##### Build

# The programs of all products.
PROGRAMS := ./cmd/... ./sharding/cmd/... ./placement/cmd/... ./placement/examples/...

GO_BUILD := go build -ldflags "-s -w $(STAMP)"

.PHONY: build
build: ## build every program into bin/
	$(GO_BUILD) -o bin/ $(PROGRAMS)

# The services: what runs in a cluster.
SERVICES := ./cmd/watcher ./cmd/processor ./cmd/webhook ./cmd/ui ./sharding/cmd/sharder ./placement/cmd/placement
# The programs of examples, which are images, too, but not in a release.
EXAMPLES := ./placement/examples/queue
ARCH ?= $(shell go env GOARCH)
TAG ?= dev
# So that the same commit gives the same images.
COMMIT_TIME := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: images
images: ## pack the services and the example of placement as images of tag TAG (dev) into bin/images/*.tar, for linux on ARCH (that of this machine); needs no Docker
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o bin/images/linux_$(ARCH)/ $(SERVICES) $(EXAMPLES)
	$(call hack,images) -arch $(ARCH) -tag $(TAG) -version $(VERSION) -revision $(COMMIT) -created $(COMMIT_TIME) \
		-o bin/images $(addprefix bin/images/linux_$(ARCH)/,$(notdir $(SERVICES) $(EXAMPLES)))

# The control plane in an image is that of the tests, if it is for the same platform.
IS_HOST = $(if $(filter linux$(ARCH),$(shell go env GOHOSTOS)$(shell go env GOHOSTARCH)),yes)
IMAGE_CONTROLPLANE = $(if $(IS_HOST),$(KUBEBUILDER_ASSETS),bin/images/controlplane_$(ARCH))
DEMO_PROGRAMS := demo watcher processor kubectl-nodekeeper
.PHONY: demo-image
demo-image: ## pack the demo, with all that it starts, as an image of tag TAG (dev) in bin/images/demo, for linux on ARCH (that of this machine); needs no Docker
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o bin/images/linux_$(ARCH)/ ./test/demo $(addprefix ./cmd/,$(filter-out demo,$(DEMO_PROGRAMS)))
	$(if $(IS_HOST),$(MAKE) controlplane,go -C hack/controlplane build -o $(CURDIR)/bin/hack/ . && GOOS=linux GOARCH=$(ARCH) bin/hack/controlplane -o $(IMAGE_CONTROLPLANE))
	$(call hack,images) -demo -arch $(ARCH) -tag $(TAG) -version $(VERSION) -revision $(COMMIT) -created $(COMMIT_TIME) -o bin/images/demo \
		$(addprefix bin/images/linux_$(ARCH)/,$(DEMO_PROGRAMS)) $(addprefix $(IMAGE_CONTROLPLANE)/,etcd kube-apiserver kubectl)

CONTROLPLANE ?=
.PHONY: controlplane
controlplane: $(CONTROLPLANE_READY) ## download etcd, kube-apiserver and kubectl for the tests, or build them if that fails (minutes, once); CONTROLPLANE=build: build them; nothing if KUBEBUILDER_ASSETS is set; KUBE=1.30: in any case build those of Kubernetes 1.30, which the tests of all targets then use

# kube-apiserver is what hack/controlplane writes last.
$(CONTROLPLANE_DIR)/kube-apiserver: hack/controlplane/go.mod hack/controlplane/go.sum hack/controlplane/envtest.sum $(if $(KUBE),hack/controlplane/kubernetes.sum)
	@go -C hack/controlplane build -o $(CURDIR)/bin/hack/ .
	@bin/hack/controlplane -o $(CONTROLPLANE_DIR) $(if $(filter build,$(CONTROLPLANE)),-build) $(addprefix -kube=,$(KUBE))

ifneq ($(filter build,$(CONTROLPLANE))$(filter-out $(wildcard $(CONTROLPLANE_PROGRAMS)),$(CONTROLPLANE_PROGRAMS)),)
.PHONY: $(CONTROLPLANE_DIR)/kube-apiserver
endif

# Everything else of a build is in the sources, but for the Go toolchain: RELEASE.md.
PLATFORMS ?=
RELEASE_DIR ?= dist
.PHONY: release
release: ## build everything of a release into dist/: VERSION=v1.2.3; PLATFORMS=linux/amd64: for these platforms only, for a quick look
	@git diff --quiet HEAD && [ -z "$$(git ls-files --others --exclude-standard)" ] || { echo "there are changes that are not committed: a release is built from a commit" >&2; exit 1; }
	$(call hack,release) -version "$(VERSION)" -commit $(COMMIT) -created $(COMMIT_TIME) -ldflags "-s -w $(STAMP)" \
		-homepage $(HOMEPAGE) -repository $(REPOSITORY) -registry $(REGISTRY) $(addprefix -platforms=,$(PLATFORMS)) -o $(RELEASE_DIR)

.PHONY: release-check
release-check: ## build a release for all platforms twice, in different directories and the second time without Go's build cache, and compare (an hour and a half on two cores)
	go -C hack test -count=1 -v -timeout=3h -run='TestTwoBuildsAreTheSame|TestEachProgramHasItsBillAndLicences|TestNoFileNamesTheBuildMachine' ./release -args -full

.PHONY: publish
publish: ## copy the images in dist/ to their registry, with the credentials of docker login, and print their digests
	@$(call hack,publish) dist/nodekeeper-*.tar

##### Test

# Where goroutines share memory: the other packages are pure, or test programs that were built without the race detector.
RACED_keeper := $$(go list ./internal/... | grep -vE '/internal/(labels|nodeview|preserve|record|revision|txn)(/|$$)')
RACED_sharding := ./sharding/shard/... ./sharding/shardlease ./sharding/internal/... ./sharding/test/library
RACED_placement := ./placement/agent ./placement/controller ./placement/internal/...
raced := $(foreach product,$(PRODUCT),$(RACED_$(product)))
# RACED=no skips the packages that make race tests, and the module of make robustness: they run there, and the race detector only finds more.
RACED ?=
unraced = $(if $(filter no,$(RACED)),$(if $(raced),| grep -vxF "$$(go list $(raced))"))
unraced_modules = $(if $(filter no,$(RACED)),$(filter-out test/robustness,$(modules)),$(modules))

# The packages that mostly run built programs: make e2e tests them, and make test the others.
E2E_PACKAGES := /test/(bench|demo|deploy|e2e|library|plugin|program|robustness)$$
.PHONY: test
test: build controlplane ## run the tests except those of make e2e, make monitoring and make browser-test; PRODUCT=keeper, sharding, placement or repository: those of one product, or of the repository itself; RACED=no: skip those that make race and make robustness run
	go list $(packages) | grep -vE '$(E2E_PACKAGES)' $(unraced) | xargs $(GO_TEST)
	@printf '%s\n' $(unraced_modules) | xargs --no-run-if-empty -P $(PACKAGES) -I{} bash -c 'cd {} && echo "--- module {}" && $(GO_TEST) ./...'

.PHONY: race
race: build controlplane ## run the tests of what is concurrent with the race detector (needs a C compiler); PRODUCT as for test
	$(if $(raced),CGO_ENABLED=1 $(GO_TEST) -race $(raced))

# RACE=yes: e2e and robustness run programs with the race detector.
RACE ?=
ifneq ($(filter yes,$(RACE)),)
PROGRAMS_TARGET := race-programs
export NODEKEEPER_BIN := $(CURDIR)/bin/race
else
PROGRAMS_TARGET := build
endif


.PHONY: race-programs
race-programs:
	CGO_ENABLED=1 go build -race -ldflags "$(STAMP)" -o bin/race/ $(PROGRAMS)

# What a product is called in its metrics.
MONITORED_keeper := nodekeeper
MONITORED_sharding := sharder
MONITORED_placement := placement
monitored := $(strip $(foreach product,$(PRODUCT),$(MONITORED_$(product))))
space := $(subst ,, )
.PHONY: monitoring
monitoring: $(if $(DRAW),build controlplane) ## test the alerts and the dashboards with Prometheus' own parser and rule engine; PRODUCT as for test; DRAW=1: draw the dashboards over runs of the programs first, DRAW=again: over the last runs
	$(if $(DRAW),go -C test/monitoring build -o $(CURDIR)/bin/monitoring/ ./picture)
	$(if $(DRAW),for product in $(monitored); do bin/monitoring/picture -product=$$product $(if $(filter again,$(DRAW)),-draw) || exit; done)
	cd test/monitoring && $(GO_TEST) $(if $(filter-out $(PRODUCT),$(ALL_PRODUCTS)),-run='/^($(subst $(space),|,$(monitored)))$$') ./...

.PHONY: browser-test
browser-test: build controlplane bin/site/index.html ## test the live page and the documentation site in Chromium, which is $CHROMIUM, or in $PATH, or installed if this runs as root; UPDATE=1 takes the pictures of docs
	chromium=$$(hack/chromium) && CHROMIUM=$$chromium go -C test/browser test -count=1 -v -timeout=$(TIMEOUT) . $(if $(filter 1,$(UPDATE)),-args -update)

# Only test/e2e can run against any cluster. The memory and the CPU time that test/deploy and test/plugin measure are those of programs without the race detector.
E2E_CHOSEN := $(if $(E2E_KUBECONFIG),/test/e2e$$,$(if $(filter yes,$(RACE)),/test/(e2e|program)$$,$(E2E_PACKAGES)))
RUN_E2E = xargs --no-run-if-empty $(GO_TEST) -count=$(COUNT) $(if $(filter-out 1,$(COUNT)),-failfast)
# The benchmarks come last, alone: where a replica has to wait for the processor, others take over its nodes, which is what they count.
.PHONY: e2e
e2e: TIMEOUT := $(if $(filter-out 1,$(COUNT))$(E2E_KUBECONFIG),4h,$(TIMEOUT))
e2e: $(PROGRAMS_TARGET) $(if $(E2E_KUBECONFIG),,controlplane) ## run the tests of the built programs, the plugins and the manifests COUNT (1) times; PRODUCT as for test; E2E_KUBECONFIG=FILE: those that can run against that cluster; RACE=yes: those of the services, with the race detector; RACED as for test
	go list $(packages) | { grep -E '$(E2E_CHOSEN)' $(unraced) || true; } | { grep -v '/test/bench$$' || true; } | $(RUN_E2E)
	go list $(packages) | { grep -E '$(E2E_CHOSEN)' || true; } | { grep '/test/bench$$' || true; } | $(RUN_E2E)

.PHONY: compatibility
compatibility: build controlplane ## run the tests that talk to an API server on Kubernetes KUBE, and store the results in docs/reference/compatibility.json and its page; PRODUCT as for test
	$(call hack,compatibility) -flags='$(GO_TEST_FLAGS)' $(foreach product,$(filter-out repository,$(PRODUCT)),'$(product) $(PACKAGES_$(product))')

# The directory of the scripts that make a small real cluster.
REALCLUSTER ?= ../shared/realcluster
.PHONY: cluster-test
cluster-test: ## deploy to a real small cluster, walk through what people do there, and run the end-to-end tests (E2E=no: skip these); PRODUCT=placement: type placement's tutorial and walk through what happens to a pool, COUNT (1) times; needs root and REALCLUSTER=DIRECTORY
	$(if $(filter-out placement,$(PRODUCT)),E2E=$(E2E),E2E=no RUN=Placement COUNT=$(COUNT)) hack/cluster-test $(REALCLUSTER)

define newline


endef
ROBUSTNESS_keeper = go -C test/robustness test .
ROBUSTNESS_placement = go test ./placement/test/robustness
SEED ?= 0
SEEDS ?= 3
DURATION ?= 45s
.PHONY: robustness
robustness: $(PROGRAMS_TARGET) controlplane ## let everything go wrong for DURATION (45s) in SEEDS (3) runs from SEED (0: a new one), and check every promise; PRODUCT=keeper or placement (whose scenarios take four seeds in a row): those of one product
	$(foreach product,$(or $(filter keeper placement,$(PRODUCT)),$(error make robustness PRODUCT=$(PRODUCT): choose keeper or placement)),$(ROBUSTNESS_$(product)) -count=1 -v -timeout=0 \
		-args -robustness.seed=$(SEED) -robustness.seeds=$(SEEDS) -robustness.duration=$(DURATION)$(newline))

# How long soak explores each of what CI explores in seconds.
SCHEDULES ?= 1000000
SOAK ?= 10m
.PHONY: soak
soak: build controlplane ## explore for long what CI explores for seconds: SCHEDULES (1000000) of each simulation, and SOAK (10m) of both suites of robustness and of the sharder's exclusion
	go test ./test/simulation -v -timeout=0 -args -schedules=$(SCHEDULES) -narrow=$(SCHEDULES)
	go test ./placement/test/simulation -v -timeout=0 -args -schedules=$(SCHEDULES) -narrow=$(SCHEDULES)
	go test ./sharding/internal/assignment -run=TestNoScheduleBreaksAPromise -v -timeout=0 -args -schedules=$(SCHEDULES)
	go test ./sharding/test/library -v -timeout=0 -run=TestExclusion -args -shard.duration=$(SOAK) -shard.objects=500
	$(MAKE) robustness DURATION=$(SOAK)

REPLICAS ?= 1,2,3
CHURN ?= 2m
QUIET ?= 1m
STARTUP ?= 5000
HALF ?= true
KILL ?= true
CUT ?= 500ms
REPLACE ?= 60
PROFILES ?=
FIGURES = $(CURDIR)/docs/performance/$(NODES)-nodes.csv
.PHONY: bench
bench: NODES ?= 1000
bench: build controlplane ## measure NODES (1000) that go and come back with REPLICAS (1,2,3) of each program; see docs/explanation/performance.md; PRODUCT=placement: 1,000 Queues on 200 agents, see placement/docs/performance.md
	go run $(if $(filter keeper,$(PRODUCT)),./test/bench -nodes=$(NODES) -replicas=$(REPLICAS) -half=$(HALF) -churn=$(CHURN) -quiet=$(QUIET) -kill=$(KILL) \
		-cut=$(CUT) -replace=$(REPLACE) -startup=$(STARTUP) -profiles=$(PROFILES) -csv=$(FIGURES),$(if $(filter placement,$(PRODUCT)),./placement/test/figures,$(error make bench PRODUCT=$(PRODUCT): choose keeper or placement; go run ./sharding/test/bench measures the sharder)))

.PHONY: fuzz
fuzz: controlplane ## run each fuzz target FUZZTIME (300000x) times; PRODUCT as for test
	@grep -rn --include='*_test.go' '^func Fuzz' $(packages:/...=) | \
		awk -F: '{sub("/[^/]*$$", "", $$1); sub("func ", "", $$3); sub("[(].*", "", $$3); print $$1, $$3} \
			END {if (!NR) {print "no fuzz target found" >"/dev/stderr"; exit 1}}' | \
		while read -r package name; do \
			echo "$$package $$name"; \
			go -C "$$package" test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) . </dev/null; \
		done

.PHONY: demo
demo: build controlplane ## show nodekeeper at work against a real API server; KEEP=1 leaves it running
	go run ./test/demo $(if $(filter 1,$(KEEP)),-keep)

.PHONY: walk
walk: ## type the commands of README.md that need Go alone, make demo and make test, with few other programs; run it in a fresh clone
	go run ./test/walk

.PHONY: shard-demo
shard-demo: build controlplane ## show the sharder at work against a real API server: shards that join, die and leave
	go run ./sharding/demo

.PHONY: placement-demo
placement-demo: build controlplane ## show placement at work against a real API server: a queue whose workers die and leave; KEEP=1 leaves it running
	go run ./placement/demo $(if $(filter 1,$(KEEP)),-keep)

##### Check

.PHONY: lint
lint: ## check code, formatting, import direction, and the workflows of GitHub; PRODUCT as for test
	$(TOOL) golangci-lint run --allow-serial-runners $(packages)
	@$(call each,$(modules) $(foreach product,$(PRODUCT),$(LINT_MODULES_$(product))),$(TOOL) golangci-lint run --allow-serial-runners)
	$(if $(filter repository,$(PRODUCT)),go tool -modfile=$(CURDIR)/tools/workflows/go.mod actionlint -shellcheck= -pyflakes=)

VALE = CGO_ENABLED=1 CGO_CFLAGS=-O0 $(TOOL) vale --no-wrap
# Of each rule the examples show that it finds something. CGO_CFLAGS: Vale brings 60 MB of parsers in C, which optimized take minutes.
.PHONY: prose
prose: ## check the spelling and the prose of all Markdown, the comments of all Go code and YAML, and the texts of the programs (builds Vale: a minute, once; needs a C compiler); LEVEL=suggestion: warnings too
prose: LEVEL ?= error
prose:
	@{ $(VALE) --output=line tools/prose/examples.{md,go,yaml} || true; } | cut -d: -f4- | LC_ALL=C sort -u | diff tools/prose/examples.txt - || \
		{ echo "the rules do not find what they should in tools/prose/examples.{md,go,yaml}" >&2; exit 1; }
	@$(VALE) --minAlertLevel=$(LEVEL) $$(git ls-files --cached --others --exclude-standard "*.md" "*.go" "*.yaml" ":!tools/prose/examples.*")
	@rm -rf bin/texts
	@$(call hack,texts) -dir=bin/texts $$(git ls-files --cached --others --exclude-standard "*.go" ":!*_test.go" ":!tools/*")
	@$(VALE) --minAlertLevel=$(LEVEL) bin/texts

.PHONY: fmt
fmt: ## format the code of every module, and make its go.mod and go.sum tidy
	$(TOOL) golangci-lint fmt
	@$(call each,$(MODULES),go mod tidy)

.PHONY: project
project: # prints project.mk as variables of a shell, for scripts
	@printf '%s\n' HOMEPAGE=$(HOMEPAGE) REPOSITORY=$(REPOSITORY) REGISTRY=$(REGISTRY) MODULE=$(MODULE)

VITEPRESS = HOMEPAGE=$(HOMEPAGE) REPOSITORY=$(REPOSITORY) hack/site/node_modules/.bin/vitepress
SITE_PACKAGES := hack/site/node_modules/.package-lock.json
$(SITE_PACKAGES): hack/site/package-lock.json
	npm --prefix hack/site ci --no-audit --no-fund --ignore-scripts
	@touch $@

.PHONY: site
site: bin/site/index.html ## make the documentation site from the Markdown of all products into bin/site (needs Node.js 20 or newer); SERVE=1: and serve it on this machine
	$(if $(filter 1,$(SERVE)),$(VITEPRESS) preview hack/site --host 127.0.0.1)

# Where the site is on its host: empty, or a path that begins with a slash.
SITE_PATH := $(shell echo $(HOMEPAGE) | sed -E 's|^https?://[^/]*||; s|/$$||')

# The site that was made last, or with these goals a new one: make -j makes it once, before whatever reads it.
bin/site/index.html: $(SITE_PACKAGES)
	$(VITEPRESS) build hack/site

ifneq ($(filter site site-check verify,$(MAKECMDGOALS)),)
.PHONY: bin/site/index.html
endif

.PHONY: site-check
site-check: site ## make the site, and check its links, anchors and pictures
	node --test hack/site/site.test.js
	@rm -rf bin/site-host && mkdir -p $(dir bin/site-host$(SITE_PATH)) && cp -r bin/site bin/site-host$(SITE_PATH)
	$(TOOL) htmltest -c hack/site/htmltest.yaml

API := sharding/api/v1alpha1
CRDS := sharding/deploy/crd
# $(1) and $(2): where the deep copies and the CRDs go.
generate = $(TOOL) controller-gen paths=./$(API) object output:object:dir=$(1) crd output:crd:dir=$(2)
.PHONY: generate
generate: ## make what is generated: deep copies and CRDs, the runbook_urls of the alerts, what the chart copies, docs/cli, the tables of results, and what the pages of reference have from the code
	$(call generate,$(API),$(CRDS))
	sed -E -i 's|(runbook_url: ).*(/docs/[^ ]*)$$|\1$(HOMEPAGE)\2|' deploy/monitoring/rules.yaml
	sed -E -i 's|(runbook_url: ).*(/sharding/docs/[^ ]*)$$|\1$(HOMEPAGE)\2|' sharding/deploy/monitoring/rules.yaml
	sed -E -i 's|(runbook_url: ).*(/placement/docs/[^ ]*)$$|\1$(HOMEPAGE)\2|' placement/deploy/monitoring/rules.yaml
	cp deploy/monitoring/dashboard.json deploy/monitoring/rules.yaml deploy/chart/nodekeeper/files/
	cp sharding/deploy/monitoring/dashboard.json sharding/deploy/monitoring/rules.yaml sharding/deploy/chart/sharder/files/
	cp $(CRDS)/*_*.yaml sharding/deploy/chart/sharder/crds/
	cp placement/deploy/monitoring/dashboard.json placement/deploy/monitoring/rules.yaml placement/deploy/chart/placement/files/
	@$(MAKE) --no-print-directory build controlplane
	cd test/helm && go test -count=1 -run=^TestReferenceHas . -args -update-reference
	$(call hack,clidocs)
	$(call hack,compatibility)
	go test -count=1 ./internal/reasons ./sharding/internal/ring ./sharding/internal/assignment ./sharding/internal/webhook ./sharding/test/pages ./test/reference ./test/programs ./test/deploy ./sharding/test/deploy ./placement/test/controller \
		-run='^TestReferenceHas|^TestMetricsOfThePrograms$$' -args -update-reference

# make test and make e2e check the rest of what make generate makes.
.PHONY: generate-check
generate-check: ## check that deep copies, CRDs, docs/cli, the results on each Kubernetes, and each go.mod and go.sum are fresh
	@new=$$(mktemp -d) && trap 'rm -r "$$new"' EXIT && $(call generate,$$new,$$new/crd) && \
		diff $(API)/zz_generated.deepcopy.go $$new/zz_generated.deepcopy.go && diff -r -x kustomization.yaml $(CRDS) $$new/crd
	$(call hack,clidocs) -check
	$(call hack,compatibility) -check
	@$(call each,$(MODULES),go mod tidy -diff)

CHECKS := lint prose site-check generate-check monitoring browser-test
.PHONY: checks
checks: # prints the checks that make verify and CI run besides the tests
	@printf '%s\n' $(CHECKS)

.PHONY: verify
verify: RACED := no
verify: demo $(CHECKS) test e2e race robustness ## what must pass before a change lands; needs a C compiler, kubectl, Node.js 20 or newer, and Chromium or root on a Debian or Ubuntu

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
