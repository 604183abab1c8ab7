{{- define "tidelock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidelock.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "tidelock.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tidelock.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tidelock.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tidelock.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tidelock.selector" -}}
app.kubernetes.io/name: {{ include "tidelock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tidelock.labels" -}}
{{ include "tidelock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of one object: (list . NAME LABELS ANNOTATIONS), the last two may be empty. */}}
{{- define "tidelock.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "tidelock.labels" $root | nindent 2 }}
  {{- with index . 2 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) (index . 3)) (default (dict) $root.Values.extraAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidelock.vcsSecretName" -}}
{{- default (printf "%s-webhook" (include "tidelock.fullname" .)) .Values.vcsSecretName -}}
{{- end -}}

{{/* Empty: pages have no login. */}}
{{- define "tidelock.basicAuthSecretName" -}}
{{- if .Values.basicAuthSecretName -}}
{{- .Values.basicAuthSecretName -}}
{{- else if (default (dict) .Values.basicAuth).username -}}
{{- printf "%s-basic-auth" (include "tidelock.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* Empty: the API is off. */}}
{{- define "tidelock.apiSecretName" -}}
{{- if .Values.apiSecretName -}}
{{- .Values.apiSecretName -}}
{{- else if (default (dict) .Values.api).secret -}}
{{- printf "%s-api" (include "tidelock.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The chart's own repository, for values that name Atlantis' image. */}}
{{- define "tidelock.ownRepository" -}}
ghcr.io/example/tidelock
{{- end -}}

{{/* Not empty: the values name the image of Atlantis, whose repository and tag mean nothing here. */}}
{{- define "tidelock.atlantisImage" -}}
{{- if regexMatch "(^|/)runatlantis/atlantis$" (toString .Values.image.repository) -}}yes{{- end -}}
{{- end -}}

{{- define "tidelock.image" -}}
{{- $of := include "tidelock.atlantisImage" . -}}
{{- $repository := ternary (include "tidelock.ownRepository" .) (toString .Values.image.repository) (not (empty $of)) -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else if and .Values.image.tag (not $of) -}}
{{ $repository }}:{{ .Values.image.tag }}
{{- else if regexMatch "^sha256:0+$" (index .Chart.Annotations "tidelock-image-digest") -}}
{{- fail "this chart is of a checkout and names no released image: set image.digest or image.tag, or take a release's chart (docs/install.md)" -}}
{{- else -}}
{{ $repository }}@{{ index .Chart.Annotations "tidelock-image-digest" }}
{{- end -}}
{{- end -}}

{{- define "tidelock.port" -}}
{{- default .Values.service.targetPort .Values.containerPort -}}
{{- end -}}

{{/* HTTPS where the server has a certificate or a probe is told so. */}}
{{- define "tidelock.scheme" -}}
{{- if .Values.tlsSecretName -}}HTTPS{{- else -}}{{- default "HTTP" .Values.livenessProbe.scheme -}}{{- end -}}
{{- end -}}

{{/* The pod's time to end; the server's is five seconds less, and an hour at most. */}}
{{- define "tidelock.grace" -}}
{{- default 305 .Values.terminationGracePeriodSeconds -}}
{{- end -}}

{{/* Repositories to serve: orgWhitelist is the old name. */}}
{{- define "tidelock.allowlist" -}}
{{- $old := toString (default "" .Values.orgWhitelist) -}}
{{- $new := toString (default "" .Values.orgAllowlist) -}}
{{- if and (or (not $new) (contains "<replace-me>" $new)) $old (ne $old "<deprecated>") -}}
{{- $old -}}
{{- else -}}
{{- $new -}}
{{- end -}}
{{- end -}}

{{/* JSON of the hosts that the server serves: user and app are never both true. */}}
{{- define "tidelock.hosts" -}}
{{- $github := default (dict) .Values.github -}}
{{- $app := default (dict) .Values.githubApp -}}
{{- dict "user" (not (empty $github.user)) "app" (and (empty $github.user) (not (empty $app))) "azure" (not (empty .Values.azuredevops)) "gitlab" (not (empty .Values.gitlab)) "gitea" (not (empty .Values.gitea)) "bitbucket" (not (empty .Values.bitbucket)) "bitbucketDataCenter" (not (empty .Values.bitbucketDataCenter)) | toJson -}}
{{- end -}}

{{/* The routes of the Gateway API that are on, as JSON. */}}
{{- define "tidelock.routes" -}}
{{- $on := dict -}}
{{- range $name, $route := .Values.route -}}
{{- if and $route $route.enabled -}}{{- $_ := set $on $name $route -}}{{- end -}}
{{- end -}}
{{- toJson $on -}}
{{- end -}}

{{/* The first host name of the ingress; empty where it has none. */}}
{{- define "tidelock.ingressHost" -}}
{{- if .Values.ingress.hosts -}}{{- (first .Values.ingress.hosts).host -}}{{- else -}}{{- .Values.ingress.host -}}{{- end -}}
{{- end -}}

{{/* Not empty: the Ingress of the pages is made. One without a host takes every host, which nobody means beside a route. */}}
{{- define "tidelock.ingress" -}}
{{- if and .Values.ingress.enabled (or (include "tidelock.ingressHost" .) (eq (include "tidelock.routes" .) "{}")) -}}yes{{- end -}}
{{- end -}}

{{/* --atlantis-url; empty where nothing says it. */}}
{{- define "tidelock.url" -}}
{{- $routes := include "tidelock.routes" . | fromJson -}}
{{- $main := default (dict) (get $routes "main") -}}
{{- if .Values.atlantisUrl -}}
{{- .Values.atlantisUrl -}}
{{- else if and (include "tidelock.ingress" .) (include "tidelock.ingressHost" .) -}}
{{ ternary "https" "http" (not (empty .Values.ingress.tls)) }}://{{ include "tidelock.ingressHost" . }}
{{- else if $main.hostnames -}}
https://{{ tpl (first $main.hostnames) . }}
{{- end -}}
{{- end -}}

{{/* A file's text as its pod has it: HOME is the data directory. */}}
{{- define "tidelock.awsDirectory" -}}
{{- default (printf "%s/.aws" .Values.atlantisDataDirectory) (default (dict) .Values.aws).directory -}}
{{- end -}}

{{- define "tidelock.gitconfigSecretName" -}}
{{- if .Values.gitconfigSecretName -}}{{ .Values.gitconfigSecretName }}{{- else if .Values.gitconfig -}}{{ include "tidelock.fullname" . }}-gitconfig{{- end -}}
{{- end -}}

{{- define "tidelock.netrcSecretName" -}}
{{- if .Values.netrcSecretName -}}{{ .Values.netrcSecretName }}{{- else if .Values.netrc -}}{{ include "tidelock.fullname" . }}-netrc{{- end -}}
{{- end -}}

{{- define "tidelock.awsSecretName" -}}
{{- $aws := default (dict) .Values.aws -}}
{{- if .Values.awsSecretName -}}{{ .Values.awsSecretName }}{{- else if or $aws.credentials $aws.config -}}{{ include "tidelock.fullname" . }}-aws{{- end -}}
{{- end -}}

{{/* Values that cannot be meant are refused, with what to do instead. */}}
{{- define "tidelock.check" -}}
{{- $allowlist := include "tidelock.allowlist" . -}}
{{- if or (not $allowlist) (contains "<replace-me>" $allowlist) -}}
{{- fail "orgAllowlist is missing: name the repositories to serve, such as github.com/acme/*" -}}
{{- end -}}
{{- $hosts := include "tidelock.hosts" . | fromJson -}}
{{- $github := default (dict) .Values.github -}}
{{- if or $hosts.user $github.token $github.secret -}}
{{- $_ := required "github.user is missing: the login of the account that the token belongs to" $github.user -}}
{{- if not (or .Values.vcsSecretName (and $github.token $github.secret)) -}}
{{- fail "github.token and github.secret are missing: give both, or vcsSecretName, an existing Secret with the keys github_token and github_secret" -}}
{{- end -}}
{{- else if and $github (not $hosts.app) -}}
{{- fail "github.user is missing: the login of the account that the token belongs to, or githubApp" -}}
{{- end -}}
{{- if $hosts.app -}}
{{- $_ := required "githubApp.id is missing: the number of the App" .Values.githubApp.id -}}
{{- if not (or .Values.vcsSecretName (and .Values.githubApp.key .Values.githubApp.secret)) -}}
{{- fail "githubApp.key and githubApp.secret are missing: give both, or vcsSecretName, an existing Secret with the keys key.pem and github_secret" -}}
{{- end -}}
{{- end -}}
{{- with .Values.azuredevops -}}
{{- $_ := required "azuredevops.user is missing: the unique name of the account that the token belongs to, such as its email address" .user -}}
{{- $_ := required "azuredevops.webhookUser is missing: the user that the service hooks send" .webhookUser -}}
{{- if not (or $.Values.vcsSecretName (and .token .webhookPassword)) -}}
{{- fail "azuredevops.token and azuredevops.webhookPassword are missing: give both, or vcsSecretName, an existing Secret with the keys azuredevops_token and azuredevops_webhook_password" -}}
{{- end -}}
{{- end -}}
{{- with .Values.gitlab -}}
{{- $_ := required "gitlab.user is missing: the user name of the account that the token belongs to" .user -}}
{{- if not (or $.Values.vcsSecretName (and .token .secret)) -}}
{{- fail "gitlab.token and gitlab.secret are missing: give both, or vcsSecretName, an existing Secret with the keys gitlab_token and gitlab_secret" -}}
{{- end -}}
{{- end -}}
{{- with .Values.gitea -}}
{{- $_ := required "gitea.user is missing: the user name of the account that the token belongs to" .user -}}
{{- if not (or $.Values.vcsSecretName (and .token .secret)) -}}
{{- fail "gitea.token and gitea.secret are missing: give both, or vcsSecretName, an existing Secret with the keys gitea_token and gitea_secret" -}}
{{- end -}}
{{- end -}}
{{- with .Values.bitbucket -}}
{{- $_ := required "bitbucket.user is missing: the e-mail address (on Bitbucket Data Center, the user name) of the account that the token belongs to, or x-token-auth for an access token" .user -}}
{{- if not (or $.Values.vcsSecretName (and .token .secret)) -}}
{{- fail "bitbucket.token and bitbucket.secret are missing: give both, or vcsSecretName, an existing Secret with the keys bitbucket_token and bitbucket_secret" -}}
{{- end -}}
{{- end -}}
{{- with .Values.bitbucketDataCenter -}}
{{- $_ := required "bitbucketDataCenter.baseUrl is missing: the address of Bitbucket Data Center, such as https://git.example.com" .baseUrl -}}
{{- $_ := required "bitbucketDataCenter.user is missing: the user name of the account that the token belongs to, or x-token-auth for the token of a project or repository" .user -}}
{{- if not (or $.Values.vcsSecretName (and .token .secret)) -}}
{{- fail "bitbucketDataCenter.token and bitbucketDataCenter.secret are missing: give both, or vcsSecretName, an existing Secret with the keys bitbucket_data_center_token and bitbucket_data_center_secret" -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.bucket) (not .Values.volumeClaim.enabled) -}}
{{- fail "volumeClaim.enabled=false leaves the state nowhere: keep the volume, or set bucket to gs://NAME/PREFIX" -}}
{{- end -}}
{{- if and (default (dict) .Values.basicAuth).username (not (default (dict) .Values.basicAuth).password) (not .Values.basicAuthSecretName) -}}
{{- fail "basicAuth.password is missing" -}}
{{- end -}}
{{- if and .Values.initConfig.enabled (not .Values.initConfig.script) -}}
{{- fail "initConfig.script is missing: what puts tools into $INIT_SHARED_DIR" -}}
{{- end -}}
{{- if .Values.disableApply -}}
{{- range $name := list "ATLANTIS_ALLOW_COMMANDS" "TIDELOCK_ALLOW_COMMANDS" -}}
{{- if hasKey (default (dict) $.Values.environment) $name -}}
{{- fail (printf "disableApply and environment.%s say different things: leave disableApply out, and apply out of the variable" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* One line for each value that means something else here than in Atlantis' chart, or nothing. Empty: none does. */}}
{{- define "tidelock.warnings" -}}
{{- $v := .Values -}}
{{- $hosts := include "tidelock.hosts" . | fromJson -}}
{{- $lines := list -}}
{{- if include "tidelock.atlantisImage" . -}}
{{- $lines = append $lines "image: repository and tag are of Atlantis, the image of this chart is used; leave both out" -}}
{{- end -}}
{{- if and (include "tidelock.ingress" .) (not (include "tidelock.ingressHost" .)) -}}
{{- $lines = append $lines "ingress.host: without it the Ingress takes requests for every host; name the server, or set ingress.enabled=false" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not (include "tidelock.ingress" .)) -}}
{{- $lines = append $lines "ingress.enabled: no Ingress is made, because it has no host and a route is on; set it to false" -}}
{{- end -}}
{{- range $name := list "ingress" "webhook_ingress" -}}
{{- $version := (index $v $name).apiVersion -}}
{{- if and $version (ne $version "networking.k8s.io/v1") -}}
{{- $lines = append $lines (printf "%s.apiVersion: networking.k8s.io/v1 is used, which every Kubernetes since 1.19 has" $name) -}}
{{- end -}}
{{- end -}}
{{- $old := toString (default "" $v.orgWhitelist) -}}
{{- if and $old (ne $old "<deprecated>") -}}
{{- $lines = append $lines (printf "orgWhitelist: %s" (ternary "used as orgAllowlist, its new name" "not used, because orgAllowlist is given" (eq $old (include "tidelock.allowlist" .)))) -}}
{{- end -}}
{{- if and $hosts.user $v.githubApp -}}
{{- $lines = append $lines "githubApp: not used, because github.user is given; leave one of them out" -}}
{{- end -}}
{{- if and (include "tidelock.gitconfigSecretName" .) (eq (toString $v.gitconfigReadOnly) "false") -}}
{{- $lines = append $lines "gitconfigReadOnly: the file is mounted read-only all the same; git config --global fails in workflows" -}}
{{- end -}}
{{- if $v.serviceAccountSecrets -}}
{{- $lines = append $lines "serviceAccountSecrets: old; put the keys into Secrets of your own and name those in googleServiceAccountSecrets" -}}
{{- end -}}
{{- range $name := list "dataStorage" "storageClassName" -}}
{{- if index $v $name -}}
{{- $lines = append $lines (printf "%s: old; use volumeClaim.%s" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if gt (int $v.replicaCount) 1 -}}
{{- $lines = append $lines "replicaCount: 1 is used; only one server leads, and a rollout with bucket needs no second one" -}}
{{- end -}}
{{- if $v.enableKubernetesBackend -}}
{{- $lines = append $lines "enableKubernetesBackend: no rights are given, because they would be on every Secret of the namespace, those of the server included; bind a Role of yours for the Secrets and leases of your states, and set serviceAccount.mount" -}}
{{- end -}}
{{- if $v.hostNetwork -}}
{{- $lines = append $lines "hostNetwork: what pull requests run has the network of the node, its metadata server included" -}}
{{- end -}}
{{- if and $v.lockingDbType (ne $v.lockingDbType "boltdb") -}}
{{- $lines = append $lines "lockingDbType: not used, locks are kept with all other state" -}}
{{- end -}}
{{- if $v.redis -}}
{{- $lines = append $lines "redis: not used, locks are kept with all other state" -}}
{{- end -}}
{{- if $v.redisSecretName -}}
{{- $lines = append $lines "redisSecretName: not used, locks are kept with all other state" -}}
{{- end -}}
{{- if and $v.redisSecretPasswordKey (ne $v.redisSecretPasswordKey "password") -}}
{{- $lines = append $lines "redisSecretPasswordKey: not used, locks are kept with all other state" -}}
{{- end -}}
{{- if gt (int (include "tidelock.grace" .)) 3605 -}}
{{- $lines = append $lines "terminationGracePeriodSeconds: a running apply has an hour of it, the most that the server waits" -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{/* A probe: (list . VALUES). */}}
{{- define "tidelock.probe" -}}
{{- $probe := index . 1 -}}
httpGet: {path: /healthz, port: http{{ if or (index . 0).Values.tlsSecretName (eq (toString $probe.scheme) "HTTPS") }}, scheme: HTTPS{{ end }}}
{{- with $probe }}
initialDelaySeconds: {{ .initialDelaySeconds }}
periodSeconds: {{ .periodSeconds }}
timeoutSeconds: {{ .timeoutSeconds }}
successThreshold: {{ .successThreshold }}
failureThreshold: {{ .failureThreshold }}
{{- end }}
{{- end -}}

{{/* Rules of an Ingress: (dict "root" . "of" VALUES "events" BOOL). */}}
{{- define "tidelock.rules" -}}
{{- $root := .root -}}
{{- $of := .of -}}
{{- $events := .events -}}
{{- $own := include "tidelock.fullname" $root -}}
{{- $hosts := $of.hosts -}}
{{- if not $hosts -}}
{{- $hosts = list (dict "host" $of.host "paths" (list $of.path)) -}}
{{- end -}}
{{- range $hosts }}
{{- $service := default $own .service }}
- http:
    paths:
      {{- if $events }}
      - path: /events
        pathType: Exact
        backend: {service: {name: {{ $own }}, port: {number: {{ $root.Values.service.port }}}}}
      {{- end }}
      {{- if and $of.paths (not $of.hosts) }}
      {{- range $of.paths }}
      - path: {{ .path | quote }}
        pathType: {{ $of.pathType }}
        backend: {service: {name: {{ default $own .service }}, port: {number: {{ default $root.Values.service.port .port }}}}}
      {{- end }}
      {{- else }}
      {{- range default (list $of.path) .paths }}
      - path: {{ . | quote }}
        pathType: {{ $of.pathType }}
        backend: {service: {name: {{ $service }}, port: {number: {{ $root.Values.service.port }}}}}
      {{- end }}
      {{- end }}
  {{- with .host }}
  host: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}
