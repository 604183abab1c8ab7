# What people run by hand; `.ci/run` runs the same.

# Everything that has to hold before a commit.
check: lint test deny docs

# Format and lints, warnings as errors.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

test:
    cargo test --workspace

# The vault by itself, its simulation included: seconds, without a build of the server.
test-vault:
    cargo test -p tidelock-vault

deny:
    cargo deny check bans licenses sources

# The manual as a book, in target/book/book.
book:
    scripts/book

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Pull requests played against the binary that is released, judged from outside.
conformance group="basic":
    cargo build --profile dist
    "$(../shared/conformance/setup.sh)/bin/python" ../shared/conformance/run.py --kind tidelock --bin target/dist/tidelock -j 2 --group {{group}} --strict-contract

# The same cases on our forge as another host: gitlab, gitea, bitbucket-cloud, bitbucket-data-center, azure-devops, github.
conformance-on host:
    cargo build --profile dist
    "$(../shared/conformance/setup.sh)/bin/python" scripts/conformance {{host}} target/dist/tidelock -j 2 --allow-quirks

# All stories of the front door and the tests of the API client on a real Gitea, and the forge's Gitea compared with it.
gitea:
    scripts/with-gitea cargo test --workspace --lib --test it gitea -- --ignored --test-threads 3

# Other programs' examples of deliveries at our doors.
payloads:
    scripts/check-payloads

# What a kill loses. how: sigkill, sigterm10, none; disk: kept, lost
chaos how="sigkill" disk="kept" trials="20":
    cargo build --profile dist
    "$(../shared/conformance/setup.sh)/bin/python" ../shared/chaos/run.py --kind tidelock --bin target/dist/tidelock --how {{how}} --disk {{disk}} --trials {{trials}} -j 2

# What a kill of the server or of jobs loses when jobs run at an executor. Each of the ten tests plays its part of the trials. engine: process, cloud_run, kubernetes
chaos-executors trials="200" engine="process":
    cargo test --test hard --no-run
    TIDELOCK_CHAOS_TRIALS=$(( ({{trials}} + 9) / 10 )) TIDELOCK_CHAOS_ENGINE={{engine}} {{ if engine == "kubernetes" { "scripts/with-cluster" } else { "" } }} cargo test --test hard -- chaos::executors --nocapture --test-threads 2

# Jobs in a cluster: ../shared/kube's, on this machine. name: part of the names of the tests
kube name="":
    scripts/check-kube {{name}}

# Servers that end at each commit of a run, before it and after it. `cargo test` tries a third of the commits a day, in one of the two ways.
every-commit:
    TIDELOCK_EVERY_COMMIT=1 cargo test --test it -- cut_after_any_commit each_commit

# A server that sleeps, with the tests that take minutes: ten idle ones without a request, and kills at any time.
sleep:
    cargo test --test it sleep -- --include-ignored --test-threads 2

# Costs, measured from outside.
perf measures="all":
    cargo build --profile dist
    "$(../shared/conformance/setup.sh)/bin/python" ../shared/perf/run.py {{measures}} --kind tidelock --bin target/dist/tidelock --work "${TMPDIR:-/tmp}/tidelock-perf"

# What the vault costs, against its bounds and its rivals. what: sync, ack, doors, restore, writes, exit, wake
bench-vault what="all":
    RCLONE="$(scripts/fetch-rclone)" cargo bench --bench vault -- {{what}}

# What the last of many pull requests, projects and events costs against the first. what: pulls, projects, events, log
bench-growth what="all":
    cargo bench --bench growth -- {{what}}

# What pages, filters and commits cost with 10,000 pull requests, 100,000 runs and 1,000,000 audit entries. share: a state so many times smaller
bench-pages share="1":
    cargo bench --bench pages -- {{share}}

# What jobs at an executor cost against jobs in the server. what: plan, many
bench-executors what="all":
    cargo bench --bench executors -- {{what}}

# `atlantis plan` deliveries; the server is killed after the last 2xx and every one is counted again.
bench-ack:
    cargo bench --bench vault -- ack

# The group commit against one commit each.
bench-store:
    cargo bench --bench store

# Whether it compiles for macOS, without a Mac. processor: aarch64, x86_64
check-macos processor="aarch64":
    scripts/check-macos {{processor}}

# All pages in Chromium.
check-pages:
    scripts/check-pages

# Every route against /openapi.json, of a server on this machine.
check-api:
    scripts/check-api

# Pictures of what people meet, into a directory; docs/dashboard.png is one of them.
pictures directory:
    scripts/check-pages --pictures {{directory}}

# Terraform module, image, manifests and deploy scripts, as far as that goes without a cloud.
check-deploy:
    scripts/check-deploy
