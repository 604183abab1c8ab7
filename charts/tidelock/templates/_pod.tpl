{{/* A variable from a Secret: (list NAME SECRET KEY). */}}
{{- define "tidelock.fromSecret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: {name: {{ index . 1 }}, key: {{ index . 2 }}}
{{- end -}}

{{/* A variable where there is a value: (list NAME VALUE). */}}
{{- define "tidelock.variable" -}}
{{- if index . 1 }}
- name: {{ index . 0 }}
  value: {{ index . 1 | quote }}
{{- end -}}
{{- end -}}

{{/* Settings as variables. Of two with one name the last counts, and TIDELOCK_… wins over ATLANTIS_…: what has a value of its own in the
chart is said there. */}}
{{- define "tidelock.env" -}}
{{- $v := .Values -}}
{{- with $v.environmentRaw }}
{{ toYaml . }}
{{- end }}
{{- range $name, $value := $v.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $v.environmentSecrets }}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {{ toJson .secretKeyRef }}
{{- end }}
- name: TIDELOCK_PORT
  value: {{ include "tidelock.port" . | quote }}
- name: TIDELOCK_DATA_DIR
  value: {{ $v.atlantisDataDirectory | quote }}
- name: HOME
  value: {{ $v.atlantisDataDirectory | quote }}
- name: TIDELOCK_BUCKET
  value: {{ default (printf "file://%s/bucket" $v.atlantisDataDirectory) $v.bucket | quote }}
{{- if $v.bucket }}
- name: TIDELOCK_SCRATCH_QUOTA_MIB
  value: {{ $v.scratchMiB | quote }}
{{- end }}
- name: TIDELOCK_SHUTDOWN_GRACE
  value: {{ printf "%ds" (min 3600 (sub (int64 (include "tidelock.grace" .)) 5)) | quote }}
- name: TIDELOCK_REPO_ALLOWLIST
  value: {{ include "tidelock.allowlist" . | quote }}
- name: TIDELOCK_TRUSTED_PROXY_HOPS
  value: {{ $v.trustedProxyHops | quote }}
{{- include "tidelock.variable" (list "TIDELOCK_ATLANTIS_URL" (include "tidelock.url" .)) }}
{{- include "tidelock.variable" (list "TIDELOCK_WEBHOOK_ALLOWLIST" $v.webhookAllowlist) }}
{{- include "tidelock.variable" (list "TIDELOCK_LOG_LEVEL" $v.logLevel) }}
{{- include "tidelock.variable" (list "TIDELOCK_ALLOW_FORK_PRS" $v.allowForkPRs) }}
{{- include "tidelock.variable" (list "TIDELOCK_ALLOW_DRAFT_PRS" $v.allowDraftPRs) }}
{{- include "tidelock.variable" (list "TIDELOCK_HIDE_PREV_PLAN_COMMENTS" $v.hidePrevPlanComments) }}
{{- include "tidelock.variable" (list "TIDELOCK_HIDE_UNCHANGED_PLAN_COMMENTS" $v.hideUnchangedPlanComments) }}
{{- include "tidelock.variable" (list "TIDELOCK_DEFAULT_TF_DISTRIBUTION" $v.defaultTFDistribution) }}
{{- include "tidelock.variable" (list "TIDELOCK_DEFAULT_TF_VERSION" $v.defaultTFVersion) }}
{{- if $v.disableApply }}
- name: TIDELOCK_ALLOW_COMMANDS
  value: version,plan,unlock,force-unlock,lock,freeze,unfreeze,approve_policies,cancel
{{- end }}
{{- include "tidelock.variable" (list "TIDELOCK_DISABLE_APPLY_ALL" $v.disableApplyAll) }}
{{- include "tidelock.variable" (list "TIDELOCK_DISABLE_REPO_LOCKING" $v.disableRepoLocking) }}
{{- if not (kindIs "invalid" $v.enableDiffMarkdownFormat) }}
- name: TIDELOCK_ENABLE_DIFF_MARKDOWN_FORMAT
  value: {{ $v.enableDiffMarkdownFormat | quote }}
{{- end }}
{{- if $v.repoConfig }}
- name: TIDELOCK_REPO_CONFIG
  value: /etc/tidelock/repos.yaml
{{- end }}
{{- if or $v.extraPath $v.initConfig.enabled }}
- name: PATH
  value: {{ printf "%s%s/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" (ternary (printf "%s:" $v.extraPath) "" (not (empty $v.extraPath))) (ternary (printf "%s:" $v.initConfig.sharedDir) "" $v.initConfig.enabled) | quote }}
{{- end }}
{{- if $v.tlsSecretName }}
- name: TIDELOCK_SSL_CERT_FILE
  value: /etc/tls/tls.crt
- name: TIDELOCK_SSL_KEY_FILE
  value: /etc/tls/tls.key
{{- end }}
{{- if $v.customPem }}
- name: SSL_CERT_FILE
  value: /etc/ssl/certs/ca-certificates.crt
{{- end }}
{{- if (default (dict) $v.aws).directory }}
- name: AWS_SHARED_CREDENTIALS_FILE
  value: {{ $v.aws.directory }}/credentials
- name: AWS_CONFIG_FILE
  value: {{ $v.aws.directory }}/config
{{- end }}
{{- $hosts := include "tidelock.hosts" . | fromJson }}
{{- if $hosts.user }}
- name: TIDELOCK_GH_USER
  value: {{ $v.github.user | quote }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GH_TOKEN" (include "tidelock.vcsSecretName" .) "github_token") }}
{{- end }}
{{- if $hosts.app }}
- name: TIDELOCK_GH_APP_ID
  value: {{ $v.githubApp.id | toString | quote }}
{{- include "tidelock.variable" (list "TIDELOCK_GH_APP_INSTALLATION_ID" $v.githubApp.installationId) }}
{{- include "tidelock.variable" (list "TIDELOCK_GH_APP_SLUG" $v.githubApp.slug) }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GH_APP_KEY" (include "tidelock.vcsSecretName" .) "key.pem") }}
{{- end }}
{{- if or $hosts.user $hosts.app }}
{{- include "tidelock.variable" (list "TIDELOCK_GH_HOSTNAME" (default (dict) $v.github).hostname) }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GH_WEBHOOK_SECRET" (include "tidelock.vcsSecretName" .) "github_secret") }}
{{- end }}
{{- with $v.azuredevops }}
- name: TIDELOCK_AZUREDEVOPS_USER
  value: {{ .user | quote }}
{{- include "tidelock.variable" (list "TIDELOCK_AZUREDEVOPS_HOSTNAME" .hostname) }}
- name: TIDELOCK_AZUREDEVOPS_WEBHOOK_USER
  value: {{ .webhookUser | quote }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_AZUREDEVOPS_TOKEN" (include "tidelock.vcsSecretName" $) "azuredevops_token") }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD" (include "tidelock.vcsSecretName" $) "azuredevops_webhook_password") }}
{{- end }}
{{- with $v.gitlab }}
- name: TIDELOCK_GITLAB_USER
  value: {{ .user | quote }}
{{- include "tidelock.variable" (list "TIDELOCK_GITLAB_HOSTNAME" .hostname) }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GITLAB_TOKEN" (include "tidelock.vcsSecretName" $) "gitlab_token") }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GITLAB_WEBHOOK_SECRET" (include "tidelock.vcsSecretName" $) "gitlab_secret") }}
{{- end }}
{{- with $v.gitea }}
- name: TIDELOCK_GITEA_USER
  value: {{ .user | quote }}
{{- include "tidelock.variable" (list "TIDELOCK_GITEA_BASE_URL" .baseUrl) }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GITEA_TOKEN" (include "tidelock.vcsSecretName" $) "gitea_token") }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_GITEA_WEBHOOK_SECRET" (include "tidelock.vcsSecretName" $) "gitea_secret") }}
{{- end }}
{{- with $v.bitbucket }}
- name: TIDELOCK_BITBUCKET_USER
  value: {{ .user | quote }}
{{- include "tidelock.variable" (list "TIDELOCK_BITBUCKET_API_USER" .apiUser) }}
{{- include "tidelock.variable" (list "TIDELOCK_BITBUCKET_BASE_URL" .baseURL) }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_BITBUCKET_TOKEN" (include "tidelock.vcsSecretName" $) "bitbucket_token") }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_BITBUCKET_WEBHOOK_SECRET" (include "tidelock.vcsSecretName" $) "bitbucket_secret") }}
{{- end }}
{{- with $v.bitbucketDataCenter }}
- name: TIDELOCK_BITBUCKET_DATA_CENTER_USER
  value: {{ .user | quote }}
- name: TIDELOCK_BITBUCKET_DATA_CENTER_BASE_URL
  value: {{ .baseUrl | quote }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_BITBUCKET_DATA_CENTER_TOKEN" (include "tidelock.vcsSecretName" $) "bitbucket_data_center_token") }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_BITBUCKET_DATA_CENTER_WEBHOOK_SECRET" (include "tidelock.vcsSecretName" $) "bitbucket_data_center_secret") }}
{{- end }}
{{- with include "tidelock.basicAuthSecretName" . }}
- name: TIDELOCK_WEB_BASIC_AUTH
  value: "true"
{{ include "tidelock.fromSecret" (list "TIDELOCK_WEB_USERNAME" . "username") }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_WEB_PASSWORD" . "password") }}
{{- end }}
{{- with include "tidelock.apiSecretName" . }}
{{ include "tidelock.fromSecret" (list "TIDELOCK_API_SECRET" . "apisecret") }}
{{- end }}
{{- end -}}

{{- define "tidelock.pod" -}}
{{- $v := .Values -}}
metadata:
  labels:
    {{- include "tidelock.selector" . | nindent 4 }}
    {{- with $v.podTemplate.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A change of the files starts a rollout. The server would follow most changes without one (docs/reload.md), but not all.
    tidelock/config: {{ printf "%s%s%s%s" $v.config $v.repoConfig $v.initConfig.script (ternary (toJson $v.executors.templates) "" $v.executors.enabled) | sha256sum }}
    {{- with $v.podTemplate.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "tidelock.serviceAccountName" . }}
  automountServiceAccountToken: {{ or $v.serviceAccount.mount $v.executors.enabled }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "tidelock.grace" . }}
  shareProcessNamespace: {{ $v.statefulSet.shareProcessNamespace }}
  dnsPolicy: {{ default "ClusterFirst" $v.dnsPolicy }}
  {{- if $v.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- range $name, $value := dict "securityContext" $v.statefulSet.securityContext "priorityClassName" $v.statefulSet.priorityClassName "dnsConfig" $v.dnsConfig "hostAliases" $v.hostAliases "nodeSelector" $v.nodeSelector "tolerations" $v.tolerations "affinity" $v.affinity "topologySpreadConstraints" $v.topologySpreadConstraints }}
  {{- with $value }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if or $v.initConfig.enabled $v.initContainers }}
  initContainers:
    {{- if $v.initConfig.enabled }}
    - name: init-config
      image: {{ $v.initConfig.image | quote }}
      imagePullPolicy: {{ $v.initConfig.imagePullPolicy }}
      command: [/etc/tidelock-init/init-config.sh]
      workingDir: {{ $v.initConfig.workDir }}
      env:
        - name: INIT_SHARED_DIR
          value: {{ $v.initConfig.sharedDir | quote }}
      {{- with $v.initConfig.containerSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: init-config, mountPath: /etc/tidelock-init, readOnly: true}
        - {name: init-shared, mountPath: {{ $v.initConfig.sharedDir }}}
        - {name: tmp, mountPath: /tmp}
    {{- end }}
    {{- with $v.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: tidelock
      image: {{ include "tidelock.image" . | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      {{- with $v.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        - server
        {{- if $v.config }}
        - --config=/etc/tidelock/tidelock.yaml
        {{- end }}
        {{- with $v.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: {{ include "tidelock.port" . }}
      env:
        {{- include "tidelock.env" . | trim | nindent 8 }}
      {{- if or $v.loadEnvFromSecrets $v.loadEnvFromConfigMaps }}
      envFrom:
        {{- range $v.loadEnvFromSecrets }}
        - secretRef: {name: {{ . }}}
        {{- end }}
        {{- range $v.loadEnvFromConfigMaps }}
        - configMapRef: {name: {{ . }}}
        {{- end }}
      {{- end }}
      {{- with $v.lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # In any role: a standby takes deliveries, so a new pod is ready while the old one leads.
      startupProbe:
        httpGet: {path: /healthz, port: http{{ if eq (include "tidelock.scheme" .) "HTTPS" }}, scheme: HTTPS{{ end }}}
        periodSeconds: 2
        failureThreshold: 60
      {{- if $v.readinessProbe.enabled }}
      readinessProbe:
        {{- include "tidelock.probe" (list . $v.readinessProbe) | nindent 8 }}
      {{- end }}
      {{- if $v.livenessProbe.enabled }}
      livenessProbe:
        {{- include "tidelock.probe" (list . $v.livenessProbe) | nindent 8 }}
      {{- end }}
      resources:
        {{- toYaml $v.resources | nindent 8 }}
      {{- with $v.containerSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: data, mountPath: {{ $v.atlantisDataDirectory }}}
        - {name: tmp, mountPath: /tmp}
        {{- if or $v.config $v.repoConfig }}
        - {name: config, mountPath: /etc/tidelock, readOnly: true}
        {{- end }}
        {{- if $v.initConfig.enabled }}
        - {name: init-shared, mountPath: {{ $v.initConfig.sharedDir }}, readOnly: {{ $v.initConfig.sharedDirReadOnly }}}
        {{- end }}
        {{- range $v.googleServiceAccountSecrets }}
        - {name: {{ .name }}, mountPath: /var/secrets/{{ .name }}, readOnly: true}
        {{- end }}
        {{- range $name, $_ := $v.serviceAccountSecrets }}
        - {name: {{ $name }}-volume, mountPath: /etc/{{ $name }}, readOnly: true}
        {{- end }}
        {{- if $v.tlsSecretName }}
        - {name: tls, mountPath: /etc/tls, readOnly: true}
        {{- end }}
        {{- if $v.customPem }}
        - {name: additional-trust-certs, mountPath: /etc/ssl/certs/ca-certificates.crt, subPath: ca-certificates.crt, readOnly: true}
        {{- end }}
        {{- if include "tidelock.gitconfigSecretName" . }}
        - {name: gitconfig, mountPath: {{ $v.atlantisDataDirectory }}/.gitconfig, subPath: gitconfig, readOnly: true}
        {{- end }}
        {{- if include "tidelock.netrcSecretName" . }}
        - {name: netrc, mountPath: {{ $v.atlantisDataDirectory }}/.netrc, subPath: netrc, readOnly: true}
        {{- end }}
        {{- if include "tidelock.awsSecretName" . }}
        - {name: aws, mountPath: {{ include "tidelock.awsDirectory" . }}, readOnly: true}
        {{- end }}
        {{- with $v.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $v.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 2Gi}
    {{- if $v.bucket }}
    # Checkouts, tools and caches. Node disk, not memory.
    - name: data
      emptyDir: {sizeLimit: {{ $v.scratchMiB }}Mi}
    {{- end }}
    {{- if or $v.config $v.repoConfig }}
    - name: config
      configMap: {name: {{ include "tidelock.fullname" . }}}
    {{- end }}
    {{- if $v.initConfig.enabled }}
    - name: init-config
      configMap: {name: {{ include "tidelock.fullname" . }}-init-config, defaultMode: 0555}
    - name: init-shared
      emptyDir: {sizeLimit: {{ $v.initConfig.sizeLimit }}}
    {{- end }}
    {{- range $v.googleServiceAccountSecrets }}
    - name: {{ .name }}
      secret: {secretName: {{ .secretName }}}
    {{- end }}
    {{- range $name, $_ := $v.serviceAccountSecrets }}
    - name: {{ $name }}-volume
      secret: {secretName: {{ $name }}}
    {{- end }}
    {{- range $name, $secret := dict "tls" $v.tlsSecretName "additional-trust-certs" $v.customPem "gitconfig" (include "tidelock.gitconfigSecretName" .) "netrc" (include "tidelock.netrcSecretName" .) "aws" (include "tidelock.awsSecretName" .) }}
    {{- if $secret }}
    - name: {{ $name }}
      secret: {secretName: {{ $secret }}}
    {{- end }}
    {{- end }}
    {{- with $v.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
