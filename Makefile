# Run `make help`.

# The longest that the tests of one package may take.
TEST_TIMEOUT ?= 15m
# The seed of the random numbers of tests; TEST_SEED= takes a new one for each test.
TEST_SEED ?= 1
# How many packages are tested at once. Each starts servers of its own, and tests
# that measure time need a processor that is not busy.
TEST_PARALLEL ?= 2
# How long each fuzz target runs.
FUZZ_TIME ?= 10s
# How long seeds are simulated.
SIMULATE_TIME ?= 1m
# How long each benchmark runs.
BENCH_TIME ?= 1s
BENCH ?= .

# Everything but the tests is compiled with the same flags, so that it is compiled
# once.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

GOLANGCI_LINT = go tool -modfile=$(CURDIR)/tools/dev.mod golangci-lint
BUF_GENERATE = go tool -modfile=tools/proto.mod buf generate
KUADRANTPB = pkg/service/kuadrant/kuadrantpb
# generate writes the code of Kuadrant's .proto below the folder $(1), or in place.
generate = $(BUF_GENERATE) $(KUADRANTPB) --path $(KUADRANTPB)/kuadrant.proto --template $(KUADRANTPB)/buf.gen.yaml $(1)

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the service: bin/rls
	go build -o bin/rls ./cmd/rls

.PHONY: run
run: build ## build and serve the rules in config/ from memory
	BACKEND_TYPE=memory RUNTIME_ROOT=. RUNTIME_SUBDIRECTORY= RUNTIME_APPDIRECTORY=config RUNTIME_WATCH_ROOT=false \
	USE_STATSD=false DRAIN_PERIOD=0s LOG_LEVEL=info GRPC_REFLECTION=true ADMIN_UDS=bin/admin.sock bin/rls serve

.PHONY: demo
demo: build ## put a real Envoy in front of the service and of a small upstream, for a shop or for RECIPE=name
	@scripts/tools.sh envoy
	@go run ./tools/demo $(if $(RECIPE),-recipe '$(RECIPE)')

.PHONY: tools
tools: ## install the real servers and the browser that tests start
	@scripts/tools.sh

# Helm renders for the Kubernetes of its client-go, which its own Makefile tells it, too: without that it
# takes itself for 1.20, and the chart wants a newer one.
HELM_KUBERNETES = $(shell sed -n 's|.*k8s.io/client-go v0\.\([0-9]*\)\..*|\1|p' tools/deploy.mod)
HELM_VERSIONS = -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$(HELM_KUBERNETES) -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=$(HELM_KUBERNETES)

.PHONY: manifest-tools
manifest-tools: ## build what renders and checks the manifests in deploy/
	go build -modfile=tools/deploy.mod -tags remove_all_sd -ldflags '$(HELM_VERSIONS)' -o .tools/bin/ helm.sh/helm/v3/cmd/helm github.com/prometheus/prometheus/cmd/promtool
	go build -modfile=tools/validate.mod -o .tools/bin/ sigs.k8s.io/kubectl-validate

.PHONY: check
check: ## build, vet, lint the packages that differ from BASE=HEAD, and run the fast tests, without real servers
	BASE=$(BASE) GOLANGCI_LINT='$(GOLANGCI_LINT)' scripts/check.sh

# A program with the race detector sleeps before it exits, for a second by default.
.PHONY: test
test: tools ## run all tests, against real servers
	scripts/test.sh env TEST_SEED=$(TEST_SEED) CGO_ENABLED=1 GORACE=atexit_sleep_ms=10 go test -race -pgo=off -exec 'env CGO_ENABLED=0' -shuffle=on -timeout $(TEST_TIMEOUT) -p $(TEST_PARALLEL)

.PHONY: fuzz
fuzz: tools ## run every fuzz target for FUZZ_TIME
	scripts/fuzz.sh $(FUZZ_TIME)

.PHONY: generate
generate: ## write the code of the .proto file anew
	$(call generate)

.PHONY: pictures
pictures: ## draw docs/pictures/quotas.svg and strategies.svg anew, from the code
	go test ./pkg/service/rlqs -count=1 -run TestThePictureIsTrue -update
	go test ./test/docs -count=1 -run TestTheBurstIsTrue -update

.PHONY: site
site: ## write the documents as a static site, with search, into dist/site
	scripts/site.sh dist/site

.PHONY: gateway
gateway: ## have Envoy Gateway's translator write the rules anew that tests serve over xDS
	scripts/gateway.sh

.PHONY: generate-check
generate-check: ## check that this code is what make generate writes
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(call generate,--output "$$dir") && \
	{ diff -ru -x '*.proto' -x '*.yaml' -x envoy $(KUADRANTPB) "$$dir/$(KUADRANTPB)" || \
		{ echo "$(KUADRANTPB) is not what its .proto says: run make generate"; exit 1; }; }

.PHONY: simulate
simulate: ## run replicas and a failing store on random seeds for SIMULATE_TIME, or replay one SEED=n
	go test ./test/simulation -run '^TestSeeds$$' -v -count 1 -timeout 0 $(if $(SEED),-seed $(SEED),-for $(SIMULATE_TIME))

.PHONY: bench
bench: tools ## run the benchmarks that match BENCH, each for BENCH_TIME
	scripts/modules.sh go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCH_TIME) -timeout $(TEST_TIMEOUT) -p 1 ./...

.PHONY: profile
profile: build ## record where the service spends its time, for the compiler: cmd/rls/default.pgo
	scripts/profile.sh cmd/rls/default.pgo

.PHONY: lint
lint: generate-check ## check style, likely mistakes, who may import whom, generated code, known vulnerabilities
	scripts/modules.sh $(GOLANGCI_LINT) run
	scripts/vulncheck.sh

.PHONY: fmt
fmt: ## format the code
	$(GOLANGCI_LINT) fmt

.PHONY: tidy
tidy: ## write in each go.mod and go.sum the modules that the code needs
	scripts/modules.sh go mod tidy

.PHONY: tidy-check
tidy-check: ## check that this is what make tidy writes, and that all go.mod have the same versions
	scripts/modules.sh go mod tidy -diff
	scripts/modules.sh go mod verify
	scripts/versions.sh

.PHONY: image
image: ## build the image as an OCI archive, without a container engine, into dist/
	scripts/release.sh image

.PHONY: release
release: ## build the binaries and the image, with checksums, into dist/
	scripts/release.sh

.PHONY: clean
clean: ## remove bin/ and dist/; .tools/ stays
	rm -rf bin dist
