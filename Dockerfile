# Tidelock with git, Terraform and OpenTofu. docs/image.md says what is in it, how its bases are
# pinned, and how to derive your own. Dockerfile.tools makes the variant with more tools.

# The server.
FROM docker.io/library/rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The commit, for the metric build_info.
ARG SOURCE_REVISION=unknown
RUN cargo build --profile dist --locked --bin tidelock \
    && install -m 0755 target/dist/tidelock /tidelock

# The server alone, for releases: docker build --target binary --output type=local,dest=.
FROM scratch AS binary
COPY --from=build /tidelock /tidelock

# The tools: checked against the sums written here, and against the signature of the ones that the releases publish.
FROM docker.io/library/debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251 AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl gpg gpgv unzip \
    && rm -rf /var/lib/apt/lists/*
COPY scripts/fetch-tool crates/runner/src/terraform/keys/hashicorp.asc crates/runner/src/terraform/keys/opentofu.asc /fetch/
ARG TERRAFORM_VERSION=1.11.4
ARG TERRAFORM_SHA256_AMD64=1ce994251c00281d6845f0f268637ba50c0005657eb3cf096b92f753b42ef4dc
ARG TERRAFORM_SHA256_ARM64=a43d1d0da9b9bab214a8305a39db0e40869572594ccf50c416a7756499143633
ARG TOFU_VERSION=1.10.6
ARG TOFU_SHA256_AMD64=15b7bed76420b50da3e121769c43341df8cd57d751ca14e6dbe9c850124c6dac
ARG TOFU_SHA256_ARM64=
# The processor that the image is for. BuildKit sets it; a default here would win over what it sets.
ARG TARGETARCH
RUN case "${TARGETARCH:-amd64}" in \
        amd64) terraform=${TERRAFORM_SHA256_AMD64} tofu=${TOFU_SHA256_AMD64} ;; \
        arm64) terraform=${TERRAFORM_SHA256_ARM64} tofu=${TOFU_SHA256_ARM64} ;; \
        *) echo "no sums for ${TARGETARCH}"; exit 1 ;; \
    esac \
    && /fetch/fetch-tool terraform "${TERRAFORM_VERSION}" "${terraform}" /fetch/hashicorp.asc /tools \
    && /fetch/fetch-tool tofu "${TOFU_VERSION}" "${tofu}" /fetch/opentofu.asc /tools

# What runs.
FROM docker.io/library/debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git git-lfs openssh-client \
    && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/* \
    && groupadd --gid 65532 tidelock \
    && useradd --uid 65532 --gid 65532 --home-dir /var/lib/tidelock --no-create-home --shell /usr/sbin/nologin tidelock \
    && install --directory --owner 65532 --group 65532 --mode 0700 /var/lib/tidelock
COPY --from=tools /tools/ /usr/local/bin/
COPY --from=build /tidelock /usr/local/bin/tidelock

# Everything that is written lies in the data directory or in /tmp, so the rest may be read-only; steps write to the data directory
# alone. No terminal to ask at.
ENV TIDELOCK_DATA_DIR=/var/lib/tidelock \
    TIDELOCK_STEP_WRITABLE=none \
    HOME=/var/lib/tidelock \
    GIT_TERMINAL_PROMPT=0 \
    CHECKPOINT_DISABLE=1
WORKDIR /var/lib/tidelock
USER 65532:65532
EXPOSE 4141

# For engines that look at it (Cloud Run and Kubernetes have probes of their own). bash opens the socket itself: no curl in here.
# With --ssl-cert-file it hears that the port speaks HTTPS, from what accepts connections.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=4 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${PORT:-4141} && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && IFS= read -r status <&3 && [[ $status == HTTP/1.?' 200'* || $status == *' 400 This port speaks HTTPS'* ]]"]

# The binary itself is PID 1, so that SIGTERM reaches it.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/tidelock"]
CMD ["server"]
