#!/usr/bin/env bash
# Builds a release for Linux on amd64 and arm64 into dist/: binaries, an OCI archive
# of the image and bills of materials; and, unless it is called as "release.sh image",
# archives of the binaries and checksums. The same sources and the same Go make the
# same bytes on any machine.
#
# VERSION, REVISION and SOURCE_DATE_EPOCH come from git unless they are set. DIST
# names another folder than dist.
set -euo pipefail
cd "$(dirname "$0")/.."

dist=${DIST:-dist}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo devel)}
revision=${REVISION-$(git rev-parse HEAD 2>/dev/null || true)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
# Settings of the user's own Go do not change a release.
export GOFLAGS=-trimpath CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT=
architectures=(amd64 arm64)

rm -rf "$dist"
for arch in "${architectures[@]}"; do
	GOOS=linux GOARCH=$arch go build -buildvcs=false \
		-ldflags "-s -w -X main.version=$version -X main.revision=$revision" \
		-o "$dist/linux-$arch/rls" ./cmd/rls
done
go run -C tools/image . -dist "$(realpath "$dist")" -license "$PWD/LICENSE" -version "$version" -revision "$revision" "${architectures[@]}"
[ "${1-}" = image ] && exit

for arch in "${architectures[@]}"; do
	cp LICENSE "$dist/linux-$arch/"
	tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu \
		-C "$dist/linux-$arch" -c rls LICENSE | gzip -9n >"$dist/rls-$version-linux-$arch.tar.gz"
done
cd "$dist"
sha256sum rls-* >SHA256SUMS
