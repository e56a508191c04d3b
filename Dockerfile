# Two images, each with the service and the command line client:
#
#   docker build -t pqbridge .                      # target embedded: static, keeps queues in /data
#   docker build --target fdb -t pqbridge:fdb .     # with FoundationDB's client as well
#
# See docs/install.md for the build arguments.

# The digest counts; docker buildx imagetools inspect golang:1.26.8-bookworm prints the present one. Its Go fetches the
# one that go.mod names (GOTOOLCHAIN=auto), whose sum is in Go's checksum database.
ARG GO_IMAGE=golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d
ARG VERSION=
ARG REVISION=

# FoundationDB's client package, and the licenses of what is in it, which come apart: where from,
# and their sums. docs/install.md says how to check them.
ARG FDB_VERSION=7.3.79
ARG FDB_WEBSITE=https://github.com/apple/foundationdb/releases/download
ARG FDB_SOURCE=https://raw.githubusercontent.com/apple/foundationdb
ARG FDB_CLIENT_SHA256_AMD64=52cc22565c42e7eb60c08f395a0626483735c311be0d80b7c035ac8e328e2fff
ARG FDB_CLIENT_SHA256_ARM64=52de6931803c322e131c5e84cebb35d647237ef51a7df3df6fbe32b9b971e7fb
ARG FDB_ACKNOWLEDGEMENTS_SHA256=34f050ab15cac76baa8cc599489a75a9fd5b4eac2cd533f5d4974b9b0a05cddd

# These stages run on the builder's own architecture: only FoundationDB's binding
# needs an emulator for another one.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS source
ENV GOTOOLCHAIN=auto
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
COPY . .

# What both images hold: the client, the certificate authorities for TLS, and
# folders for the embedded store and for a volume with its backups, whose owner a
# new volume gets: without one, backups are refused (-X main.inImage). Their group
# is 0 because some platforms choose the user themselves, always with that group.
FROM source AS build-common
ARG VERSION
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    set -eu; umask 022; \
    mkdir -p /image/usr/local/bin; \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
      -ldflags "-s -w ${VERSION:+-X main.version=${VERSION}}" -o /image/usr/local/bin/ ./cmd/pq; \
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt; \
    install -D -m 644 LICENSE /image/usr/share/doc/pqbridge/LICENSE; \
    install -D -m 644 /usr/share/doc/ca-certificates/copyright /image/usr/share/doc/ca-certificates/copyright; \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH .ci/licenses > /image/usr/share/doc/pqbridge/THIRD-PARTY-LICENSES; \
    install -d -m 1777 /image/tmp; \
    install -d -m 2770 -o 65532 -g 0 /image/data; \
    install -d -m 2770 -o 65532 -g 0 /image/backup

FROM source AS build-embedded
ARG VERSION
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    set -eu; umask 022; \
    mkdir -p /image/usr/local/bin; \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
      -ldflags "-s -w -X main.inImage=yes ${VERSION:+-X main.version=${VERSION}}" -o /image/usr/local/bin/ ./cmd/pqbridge

FROM ${GO_IMAGE} AS build-fdb
ENV GOTOOLCHAIN=auto

ARG FDB_VERSION
ARG FDB_WEBSITE
ARG FDB_SOURCE
ARG FDB_CLIENT_SHA256_AMD64
ARG FDB_CLIENT_SHA256_ARM64
ARG FDB_ACKNOWLEDGEMENTS_SHA256

# The package is unpacked, not installed: its scripts make users and cluster
# files that a build has no use for.
RUN set -eu; \
    arch=$(dpkg --print-architecture); \
    case "$arch" in \
      amd64) sum=$FDB_CLIENT_SHA256_AMD64 ;; \
      arm64) sum=$FDB_CLIENT_SHA256_ARM64; arch=aarch64 ;; \
      *) echo "FoundationDB has no client package for $arch: build the target embedded" >&2; exit 1 ;; \
    esac; \
    fetch() { \
      curl --fail --silent --show-error --location --output "$1" "$2" || { \
        echo "$2 cannot be fetched: name mirrors with --build-arg FDB_WEBSITE=<URL> and --build-arg FDB_SOURCE=<URL>," \
          "or FDB_WEBSITE and FDB_SOURCE in the environment of docker compose" >&2; exit 1; }; \
      echo "$3  $1" | sha256sum -c -; \
    }; \
    doc=/image/usr/share/doc/foundationdb; \
    mkdir -p $doc; \
    fetch /tmp/fdb.deb "${FDB_WEBSITE}/${FDB_VERSION}/foundationdb-clients_${FDB_VERSION}-1_${arch}.deb" "$sum"; \
    fetch $doc/ACKNOWLEDGEMENTS "${FDB_SOURCE}/${FDB_VERSION}/ACKNOWLEDGEMENTS" "$FDB_ACKNOWLEDGEMENTS_SHA256"; \
    dpkg-deb -x /tmp/fdb.deb /; \
    rm /tmp/fdb.deb; \
    ldconfig

WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
COPY . .

# The binding needs C, and libfdb_c comes as a shared library only: so that and
# the C library stay dynamic, while names and users are looked up by Go. What Debian
# says about the copyrights of these names the files with the texts of licenses.
ARG VERSION
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    set -eu; umask 022; \
    mkdir -p /image/usr/local/bin; \
    CGO_ENABLED=1 go build -trimpath -tags fdb,pebblegozstd,netgo,osusergo \
      -ldflags "-s -w -X main.inImage=yes ${VERSION:+-X main.version=${VERSION}}" -o /image/usr/local/bin/ ./cmd/pqbridge; \
    for library in $(ldd /image/usr/local/bin/pqbridge | grep -o '/[^ ]*'); do \
      install -D "$library" "/image$library"; \
      package=$(dpkg -S "*$library" 2>/dev/null | head -n 1 | cut -d: -f1); \
      [ -z "$package" ] || install -D -m 644 "/usr/share/doc/$package/copyright" "/image/usr/share/doc/$package/copyright"; \
    done; \
    for text in $(grep -oh '/usr/share/common-licenses/[A-Za-z]*[-.0-9]*' /image/usr/share/doc/*/copyright | sort -u); do \
      text=${text%.}; \
      [ ! -f "$text" ] || install -D -m 644 "$text" "/image$text"; \
    done; \
    install -d /image/usr/share/doc/pqbridge; \
    CGO_ENABLED=1 .ci/licenses -tags fdb,pebblegozstd,netgo,osusergo > /image/usr/share/doc/pqbridge/THIRD-PARTY-LICENSES; \
    install -D -m 644 /etc/ld.so.cache /image/etc/ld.so.cache

# How both images run.
FROM scratch AS image

ARG VERSION
ARG REVISION

LABEL org.opencontainers.image.title="pqbridge" \
      org.opencontainers.image.description="Durable priority queues over NATS, kept in FoundationDB or an embedded store" \
      org.opencontainers.image.url="https://github.com/pqbridge/pqbridge" \
      org.opencontainers.image.documentation="https://github.com/pqbridge/pqbridge/blob/main/docs/install.md" \
      org.opencontainers.image.source="https://github.com/pqbridge/pqbridge" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# All but /data, and a volume at /backup, can be read-only. With -dev, NATS listens on all addresses,
# because published ports do not lead to 127.0.0.1 of the container.
ENV PATH=/usr/local/bin \
    PQ_DATA_DIR=/data \
    PQ_HTTP_ADDR=0.0.0.0:8422 \
    PQ_DEV_NATS_HOST=0.0.0.0
EXPOSE 8422
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["/usr/local/bin/pqbridge", "-healthcheck"]
ENTRYPOINT ["/usr/local/bin/pqbridge"]

FROM image AS fdb
ARG FDB_VERSION
LABEL com.foundationdb.client.version="${FDB_VERSION}"
COPY --from=build-common /image/ /
COPY --from=build-fdb /image/ /
# Fails if a library is missing.
RUN ["/usr/local/bin/pqbridge", "-version"]
VOLUME /data

FROM image AS embedded
COPY --from=build-common /image/ /
COPY --from=build-embedded /image/ /
VOLUME /data
