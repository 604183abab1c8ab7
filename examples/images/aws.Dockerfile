# Tidelock with aws, as Debian has it: for steps that call it. Providers and backends need none, they take the credentials by themselves.
# Replace the image by the one that you run, by digest.
FROM ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000
USER 0
RUN apt-get update \
    && apt-get install --yes --no-install-recommends awscli \
    && rm -rf /var/lib/apt/lists/*
USER 65532:65532
HEALTHCHECK NONE
