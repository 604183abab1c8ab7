# Tidelock with gcloud, from Google's repository for Debian: for steps that call it. The providers google and google-beta need none.
# Replace the image by the one that you run, by digest.
FROM docker.io/library/debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251 AS key
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl gpg \
    && rm -rf /var/lib/apt/lists/*
# The key is taken for its fingerprint alone, which is written down here, and not for where it is from.
RUN curl --fail --silent --show-error --location --output /key https://packages.cloud.google.com/apt/doc/apt-key.gpg \
    && gpg --batch --no-default-keyring --keyring /all.gpg --import /key \
    && gpg --batch --no-default-keyring --keyring /all.gpg --output /key.gpg --export 35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3 \
    && gpg --batch --show-keys --with-colons /key.gpg | grep --quiet '^fpr:*35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3:'

FROM ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000
USER 0
COPY --from=key --chmod=0644 /key.gpg /usr/share/keyrings/gcloud.gpg
RUN echo "deb [signed-by=/usr/share/keyrings/gcloud.gpg] https://packages.cloud.google.com/apt cloud-sdk main" > /etc/apt/sources.list.d/gcloud.list \
    && apt-get update \
    && apt-get install --yes --no-install-recommends google-cloud-cli \
    && rm -rf /var/lib/apt/lists/*
USER 65532:65532
HEALTHCHECK NONE
