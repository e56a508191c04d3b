# The service and the command line client, with the FoundationDB engine.
#
#   docker build --build-arg FDB_CLIENT_SHA256=<sum> -t pqbridge .
#
# The sum is that of FoundationDB's client package for the architecture; see
# docs/operations.md for where to read it. There is no default on purpose: a sum
# that came with this file would be no second source.

# Set it to the same tag with @sha256:<digest> to pin the image by its content.
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG FDB_VERSION=7.3.79
ARG VERSION=

FROM ${GO_IMAGE} AS build

ARG FDB_VERSION
ARG FDB_CLIENT_SHA256

# The package is unpacked, not installed: its scripts make users and cluster
# files that a build has no use for.
RUN set -eu; \
    : "${FDB_CLIENT_SHA256:?give the SHA-256 sum of the FoundationDB client package, see docs/operations.md}"; \
    arch=$(dpkg --print-architecture); \
    case "$arch" in \
      amd64) ;; \
      arm64) arch=aarch64 ;; \
      *) echo "FoundationDB has no client package for $arch" >&2; exit 1 ;; \
    esac; \
    curl --fail --silent --show-error --location --output /tmp/fdb.deb \
      "https://github.com/apple/foundationdb/releases/download/${FDB_VERSION}/foundationdb-clients_${FDB_VERSION}-1_${arch}.deb"; \
    echo "${FDB_CLIENT_SHA256}  /tmp/fdb.deb" | sha256sum -c -; \
    dpkg-deb -x /tmp/fdb.deb /; \
    rm /tmp/fdb.deb; \
    ldconfig

WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .

ARG VERSION

# The binding needs C, and libfdb_c comes as a shared library only: so that and
# the C library stay dynamic, while names and users are looked up by Go. The
# client needs neither and is static.
RUN set -eu; \
    ldflags="-s -w ${VERSION:+-X main.version=${VERSION}}"; \
    mkdir -p /image/usr/local/bin; \
    CGO_ENABLED=1 go build -trimpath -tags fdb,netgo,osusergo -ldflags "$ldflags" -o /image/usr/local/bin/ ./cmd/pqbridge; \
    CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o /image/usr/local/bin/ ./cmd/pq

# The rest of the image: the libraries that pqbridge names, the certificate
# authorities for TLS, and a folder for the embedded store.
RUN set -eu; \
    for library in $(ldd /image/usr/local/bin/pqbridge | grep -o '/[^ ]*'); do \
      install -D "$library" "/image$library"; \
    done; \
    install -D /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt; \
    install -D /etc/ld.so.cache /image/etc/ld.so.cache; \
    install -D LICENSE /image/usr/share/doc/pqbridge/LICENSE; \
    install -d -m 1777 /image/tmp; \
    install -d -o 65532 -g 65532 /image/data

FROM scratch

ARG FDB_VERSION
ARG VERSION

LABEL org.opencontainers.image.title="pqbridge" \
      org.opencontainers.image.description="Durable priority queues over NATS, kept in FoundationDB or an embedded store" \
      org.opencontainers.image.source="https://github.com/pqbridge/pqbridge" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      com.foundationdb.client.version="${FDB_VERSION}"

COPY --from=build /image/ /

# All but /data can be read-only.
ENV PATH=/usr/local/bin \
    PQ_DATA_DIR=/data \
    PQ_HTTP_ADDR=0.0.0.0:8422
VOLUME /data
EXPOSE 8422

USER 65532:65532
# Fails if a library is missing.
RUN ["/usr/local/bin/pqbridge", "-version"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["/usr/local/bin/pqbridge", "-healthcheck"]
ENTRYPOINT ["/usr/local/bin/pqbridge"]
