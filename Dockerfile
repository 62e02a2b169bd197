# Packrat's images: operator, gateway (Envoy with Packrat's filters) and tools (the packrat command). `make images` builds all three.
#
#   docker build --target gateway --tag packrat/gateway:dev .
#
# The finished images hold the programs and the shared libraries that they need, without shell and package manager. If no image can be
# pulled, name local ones: --build-arg BUILDER=… (a Debian or Ubuntu) and --build-arg BASE=….
ARG BUILDER=pinned
ARG BASE=scratch

FROM debian:bookworm@sha256:30482e873082e906a4908c10529180aefb6f77620aea7404b909829fadc5d168 AS pinned
# Its sources name, in a comment, the archive of the day that it was made of: the same packages come from there at any time.
RUN grep -q '^# http' /etc/apt/sources.list.d/debian.sources \
 && sed -i '/^URIs:/d; s/^# http/URIs: http/' /etc/apt/sources.list.d/debian.sources \
 && echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/90archive

FROM ${BUILDER} AS build
ENV DEBIAN_FRONTEND=noninteractive PATH=/root/.cargo/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
# A download that breaks off is a failure, not an empty script.
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# (the archive decides about the versions)
# hadolint ignore=DL3008
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends binutils build-essential ca-certificates cmake curl python3 python3-venv
# (Debian 12 has no rustup)
RUN command -v rustup || { machine=$(uname -m) \
 && case "$machine" in \
    x86_64) sum=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;; \
    aarch64) sum=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;; \
    *) echo "no rustup-init is pinned for $machine: add its sum to the Dockerfile" >&2; exit 1 ;; \
    esac \
 && curl --proto '=https' --tlsv1.2 -sSfo /tmp/rustup-init "https://static.rust-lang.org/rustup/archive/1.28.2/$machine-unknown-linux-gnu/rustup-init" \
 && echo "$sum  /tmp/rustup-init" | sha256sum --check --quiet \
 && chmod 0755 /tmp/rustup-init \
 && /tmp/rustup-init -y --profile minimal --default-toolchain none \
 && rm /tmp/rustup-init; }
WORKDIR /src
COPY . .
ARG PROFILE=release
RUN tools/install-demo-parts --only-envoy \
 && tools/build-token-filter \
 && cargo build --locked --profile "$PROFILE" -p packrat -p packrat-envoy -p packrat-operator \
 && for name in operator gateway tools; do tools/image-root "$name" "$PROFILE" "/images/$name"; done

# What the three have in common.
FROM ${BASE} AS runtime
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532

FROM runtime AS operator
LABEL org.opencontainers.image.title="packrat-operator" \
      org.opencontainers.image.description="Turns annotated Services into routes of Envoy gateways"
COPY --from=build /images/operator /
ENTRYPOINT ["/usr/local/bin/packrat-operator"]

FROM runtime AS gateway
LABEL org.opencontainers.image.title="packrat-gateway" \
      org.opencontainers.image.description="Envoy with Packrat's filters"
COPY --from=build /images/gateway /
ENV ENVOY_DYNAMIC_MODULES_SEARCH_PATH=/usr/lib/packrat
ENTRYPOINT ["/usr/local/bin/envoy"]

FROM runtime AS tools
LABEL org.opencontainers.image.title="packrat-tools" \
      org.opencontainers.image.description="The packrat command"
COPY --from=build /images/tools /
ENTRYPOINT ["/usr/local/bin/packrat"]
