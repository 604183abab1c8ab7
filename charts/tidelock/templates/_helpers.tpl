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
{{- with merge (dict) (default (dict) (index . 3)) $root.Values.extraAnnotations }}
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
{{- else if .Values.basicAuth.username -}}
{{- printf "%s-basic-auth" (include "tidelock.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* Empty: the API is off. */}}
{{- define "tidelock.apiSecretName" -}}
{{- if .Values.apiSecretName -}}
{{- .Values.apiSecretName -}}
{{- else if .Values.api.secret -}}
{{- printf "%s-api" (include "tidelock.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "tidelock.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* --atlantis-url; empty where nothing says it. */}}
{{- define "tidelock.url" -}}
{{- if .Values.atlantisUrl -}}
{{- .Values.atlantisUrl -}}
{{- else if .Values.ingress.enabled -}}
{{- $host := .Values.ingress.host -}}
{{- if .Values.ingress.hosts -}}{{- $host = (first .Values.ingress.hosts).host -}}{{- end -}}
{{- if $host -}}{{ ternary "https" "http" (not (empty .Values.ingress.tls)) }}://{{ $host }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* What cannot be meant is refused, with what to do instead. */}}
{{- define "tidelock.check" -}}
{{- if or (not .Values.orgAllowlist) (contains "<replace-me>" .Values.orgAllowlist) -}}
{{- fail "orgAllowlist is missing: name the repositories to serve, such as github.com/acme/*" -}}
{{- end -}}
{{- with .Values.github -}}
{{- $_ := required "github.user is missing: the login of the account that the token belongs to" .user -}}
{{- if not (or $.Values.vcsSecretName (and .token .secret)) -}}
{{- fail "github.token and github.secret are missing: give both, or vcsSecretName, an existing Secret with the keys github_token and github_secret" -}}
{{- end -}}
{{- end -}}
{{- with .Values.azuredevops -}}
{{- $_ := required "azuredevops.user is missing: the unique name of the account that the token belongs to, such as its email address" .user -}}
{{- $_ := required "azuredevops.webhookUser is missing: the user that the service hooks send" .webhookUser -}}
{{- if not (or $.Values.vcsSecretName (and .token .webhookPassword)) -}}
{{- fail "azuredevops.token and azuredevops.webhookPassword are missing: give both, or vcsSecretName, an existing Secret with the keys azuredevops_token and azuredevops_webhook_password" -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.bucket) (not .Values.volumeClaim.enabled) -}}
{{- fail "volumeClaim.enabled=false leaves the state nowhere: keep the volume, or set bucket to gs://NAME/PREFIX" -}}
{{- end -}}
{{- if and .Values.basicAuth.username (not .Values.basicAuth.password) (not .Values.basicAuthSecretName) -}}
{{- fail "basicAuth.password is missing" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) (not .Values.ingress.hosts) -}}
{{- fail "ingress.host is missing: the name of the server, or ingress.enabled=false" -}}
{{- end -}}
{{- if and .Values.initConfig.enabled (not .Values.initConfig.script) -}}
{{- fail "initConfig.script is missing: what puts tools into $INIT_SHARED_DIR" -}}
{{- end -}}
{{- $refused := dict
    "orgWhitelist" "use orgAllowlist"
    "githubApp" "the chart has no values for a GitHub App: use the token of an account, under github"
    "gitlab" "GitLab is not built yet"
    "bitbucket" "Bitbucket is not built yet"
    "gitea" "Gitea is not built yet"
    "redis" "locks are kept in the bucket: leave it out"
    "redisSecretName" "locks are kept in the bucket: leave it out"
    "hidePrevPlanComments" "it is not built yet: leave it out"
    "disableApply" "set environment.ATLANTIS_ALLOW_COMMANDS to version,plan,unlock,cancel"
    "tlsSecretName" "the server speaks HTTP: end TLS in the ingress"
    "gitconfig" "put it into a Secret, and mount that with extraVolumes and extraVolumeMounts as .gitconfig in atlantisDataDirectory"
    "gitconfigSecretName" "mount it with extraVolumes and extraVolumeMounts as .gitconfig in atlantisDataDirectory"
    "netrc" "put it into a Secret, and mount that with extraVolumes and extraVolumeMounts as .netrc in atlantisDataDirectory"
    "netrcSecretName" "mount it with extraVolumes and extraVolumeMounts as .netrc in atlantisDataDirectory"
    "aws" "prefer serviceAccount.annotations (a role); or mount a Secret with extraVolumes as .aws in atlantisDataDirectory"
    "awsSecretName" "prefer serviceAccount.annotations (a role); or mount it with extraVolumes as .aws in atlantisDataDirectory"
    "customPem" "mount it with extraVolumes, and name it in environment.SSL_CERT_FILE"
    "serviceAccountSecrets" "use googleServiceAccountSecrets"
    "enableKubernetesBackend" "bind a Role of yours to the service account, and set serviceAccount.mount"
    "dataStorage" "use volumeClaim.dataStorage"
    "storageClassName" "use volumeClaim.storageClassName"
    "hostNetwork" "what pull requests run would have the node's network"
-}}
{{- range $name, $what := $refused -}}
{{- $value := index $.Values $name -}}
{{- if and $value (ne (toString $value) "<deprecated>") -}}
{{- fail (printf "%s has no meaning here: %s" $name $what) -}}
{{- end -}}
{{- end -}}
{{- if eq (toString .Values.lockingDbType) "redis" -}}
{{- fail "lockingDbType=redis has no meaning here: locks are kept in the bucket" -}}
{{- end -}}
{{- if (default (dict) .Values.servicemonitor).enabled -}}
{{- fail "servicemonitor has no meaning here: use podMonitor, with kind: PodMonitor for the Prometheus operator" -}}
{{- end -}}
{{- end -}}

{{/* Probes other than the address: (list . VALUES). */}}
{{- define "tidelock.probe" -}}
httpGet: {path: /healthz, port: http}
initialDelaySeconds: {{ .initialDelaySeconds }}
periodSeconds: {{ .periodSeconds }}
timeoutSeconds: {{ .timeoutSeconds }}
successThreshold: {{ .successThreshold }}
failureThreshold: {{ .failureThreshold }}
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
