#!/usr/bin/env bash
# scripts/gateway.sh   writes pkg/sources/xds/testdata/gateway/resources.json anew
#
# The rules in it are those that Envoy Gateway's translator makes of manifests.yaml beside it. The
# translator is an internal package, which only modules below Envoy Gateway's may import, and takes
# minutes to compile. So the program that runs it is compiled in a module of its own, which is not
# one of the repository's, and the tests read what it has written.
set -euo pipefail
cd "$(dirname "$0")/../pkg/sources/xds/testdata/gateway"

module=$(mktemp -d)
trap 'rm -rf "$module"' EXIT
cp main.go "$module"
(
	cd "$module"
	go mod init github.com/envoyproxy/gateway/rules
	go get github.com/envoyproxy/gateway@v1.9.1
	go mod tidy
	go build -o translate .
) 2>"$module/log" || { cat "$module/log" >&2; exit 1; }
"$module/translate" <manifests.yaml >"$module/resources.json"
cp "$module/resources.json" resources.json
