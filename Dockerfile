# The image, for a container engine. `make image` builds it without an engine and
# reproducibly, with a bill of materials, and with Mozilla's certificates from a
# pinned module instead of Debian's. Names, user and ports stand in tools/image,
# too, and a test compares them. Only the certificates of the building image get into
# this one; GO_VERSION=1.26@sha256:... pins it.
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY internal internal
COPY pkg pkg
ARG TARGETOS TARGETARCH
ARG VERSION REVISION
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
        -ldflags "-s -w -X main.version=${VERSION} -X main.revision=${REVISION}" \
        -o /image/bin/rls ./cmd/rls \
    && ln -s rls /image/bin/ratelimit \
    && mkdir -p /image/etc/ssl/certs \
    && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
    && printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' > /image/etc/passwd \
    && printf 'root:x:0:\nnobody:x:65534:\n' > /image/etc/group

FROM scratch
ARG VERSION REVISION
LABEL org.opencontainers.image.title="rls" \
      org.opencontainers.image.description="A rate-limit service for Envoy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
COPY LICENSE /usr/share/doc/rls/LICENSE
ENV PATH=/bin
WORKDIR /
USER 65534:65534
EXPOSE 6070 8080 8081 9090
# An orchestrator of its own, such as Kubernetes, ignores this and has probes.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/bin/rls", "healthcheck"]
# The program's defaults depend on its name. A pod without a command expects the
# defaults of envoyproxy/ratelimit.
ENTRYPOINT ["/bin/ratelimit"]
