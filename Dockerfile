# One static binary in an empty image: no shell, no user database, nothing to be exploited but itself.
# CONTRIBUTING.md says why musl, how to see that it is reproducible, and how it is built without a registry.
#
#   docker build --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --build-arg REVISION="$(git rev-parse HEAD)" .

FROM rust:1.95.0-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends jq musl-tools \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY rust-toolchain.toml ./
RUN rustup target add "$(uname -m)-unknown-linux-musl"
COPY . .
ARG SOURCE_DATE_EPOCH=0
RUN image/binary.sh /out/listless && image/sbom.sh /out

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="listless" \
      org.opencontainers.image.description="Answers the reads of Kubernetes clients from memory, to take load off the apiserver" \
      org.opencontainers.image.source="https://github.com/listless-dev/listless" \
      org.opencontainers.image.documentation="https://github.com/listless-dev/listless/blob/main/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /out/listless /listless
COPY --from=build /out/sbom.spdx.json /sbom.spdx.json
COPY --from=build /out/licenses /licenses
# A number, so that the kubelet sees that it is not root.
USER 65532:65532
ENTRYPOINT ["/listless"]
