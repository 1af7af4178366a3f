{{- define "rls.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 54 bytes, so that a name with -headless has no more than 63. */}}
{{- define "rls.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- else if contains (include "rls.name" .) .Release.Name -}}
{{- .Release.Name | trunc 54 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rls.name" .) | trunc 54 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rls.selector" -}}
app.kubernetes.io/name: {{ include "rls.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rls.labels" -}}
{{ include "rls.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The metadata of an object. Its argument is a dict with root (the context of the chart),
     name (fullname by default), and the labels and annotations of this object, which
     override those of all objects. */}}
{{- define "rls.metadata" -}}
{{- $v := .root.Values -}}
name: {{ default (include "rls.fullname" .root) .name }}
labels: {{- merge (dict) (default dict .labels) (default dict $v.commonLabels) (fromYaml (include "rls.labels" .root)) | toYaml | nindent 2 }}
{{- with merge (dict) (default dict .annotations) (default dict $v.commonAnnotations) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "rls.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rls.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "rls.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The environment: from the other values; settings override it. */}}
{{- define "rls.settings" -}}
{{- $env := dict
  "RUNTIME_ROOT" "/etc/rls" "RUNTIME_APPDIRECTORY" "rules" "RUNTIME_WATCH_ROOT" "false"
  "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" "true"
  "DEBUG_HOST" "127.0.0.1" "LOG_FORMAT" "json" "LOG_LEVEL" "info"
  "GRPC_MAX_CONNECTION_AGE" "10m" "GRPC_MAX_CONNECTION_AGE_GRACE" "1m"
  "USE_PROMETHEUS" .Values.metrics.enabled
  "DRAIN_PERIOD" (printf "%ds" (int .Values.drainPeriodSeconds))
  "BACKEND_TYPE" .Values.backend.type -}}
{{- if eq .Values.backend.type "redis" -}}
{{- $_ := merge $env (dict "REDIS_SOCKET_TYPE" "tcp" "REDIS_TYPE" .Values.backend.redis.type "REDIS_URL" .Values.backend.redis.url "REDIS_TLS" .Values.backend.redis.tls) -}}
{{- if include "rls.redisCA" . -}}
{{- $_ := set $env "REDIS_TLS_CACERT" (printf "/etc/rls/redis-ca/%s" .Values.backend.redis.ca.key) -}}
{{- end -}}
{{- else if eq .Values.backend.type "memory" -}}
{{- /* At most 200 MB: a key takes at most 400 bytes. */}}
{{- $_ := set $env "MEMORY_MAX_KEYS" 500000 -}}
{{- else if and (eq .Values.backend.type "memcache") .Values.backend.memcache.hosts -}}
{{- $_ := set $env "MEMCACHE_HOST_PORT" .Values.backend.memcache.hosts -}}
{{- end -}}
{{- range $volume, $secret := fromYaml (include "rls.passwords" .) -}}
{{- $_ := set $env $secret.setting (printf "/etc/rls/%s/auth" $volume) -}}
{{- end -}}
{{- if ne .Values.backend.type "memory" -}}
{{- /* An address for each ready pod, which divide the limits with on_error: local. */}}
{{- $_ := set $env "REPLICAS_DNS" (printf "%s-headless" (include "rls.fullname" .)) -}}
{{- end -}}
{{- $settings := deepCopy (default dict .Values.settings) -}}
{{- $certificates := fromYaml (include "rls.certificates" .) -}}
{{- range $volume, $secret := $certificates -}}
{{- range $setting, $value := $secret.settings -}}
{{- $_ := set $env $setting $value -}}
{{- end -}}
{{- end -}}
{{- if .Values.admin.fleet.enabled -}}
{{- /* Every address of the pod: the other pods come to its own, kubectl port-forward to the loopback. */}}
{{- $service := printf "%s-headless" (include "rls.fullname" .) -}}
{{- $_ := merge $env (dict "ADMIN_HOST" (default "0.0.0.0" $settings.HOST) "ADMIN_FLEET" (printf "%s:6071" $service)) -}}
{{- $names := list (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) (printf "%s.%s.svc.cluster.local" $service .Release.Namespace) -}}
{{- $_ := set $settings "ADMIN_ALLOWED_HOSTS" (append $names $settings.ADMIN_ALLOWED_HOSTS | compact | join ",") -}}
{{- end -}}
{{- range $name, $value := merge $settings $env }}
{{- /* Helm reads every number as a float64 and prints large ones as 4.194304e+06. */}}
{{- if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value = int64 $value }}{{ end }}{{ end }}
{{ $name }}: {{ toString $value | quote }}
{{- end -}}
{{- end -}}

{{/* "true" if a setting is on, else "". Its argument: (list . NAME) */}}
{{- define "rls.on" -}}
{{- if has (get (default dict (index . 0).Values.settings) (index . 1) | toString | lower) (list "true" "t" "1") -}}true{{- end -}}
{{- end -}}

{{/* "true" if the rules are files, "" if a management server sends them. */}}
{{- define "rls.readsFiles" -}}
{{- if not (hasPrefix "GRPC_" (get (default dict .Values.settings) "CONFIG_TYPE" | toString | upper)) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the chart makes the ConfigMap of rules. */}}
{{- define "rls.ownRules" -}}
{{- $v := .Values -}}
{{- if and (include "rls.readsFiles" .) (or $v.rules (not (or $v.existingRulesConfigMap $v.existingRulesConfigMaps $v.rulesVolume))) -}}true{{- end -}}
{{- end -}}

{{/* The volumes with rules, by name: the folder of each, and where it comes from. Of
     several ConfigMaps each has a folder of its own, so that their files may have the
     same names. */}}
{{- define "rls.rules" -}}
{{- $v := .Values -}}
{{- $own := ternary (list (printf "%s-rules" (include "rls.fullname" .))) list (include "rls.ownRules" . | eq "true") -}}
{{- $volumes := dict -}}
{{- if $v.rulesVolume -}}
{{- $_ := set $volumes "rules" (dict "folder" "/etc/rls/rules" "from" $v.rulesVolume) -}}
{{- else if $v.existingRulesConfigMaps -}}
{{- range $i, $name := concat $own $v.existingRulesConfigMaps -}}
{{- $_ := set $volumes (printf "rules-%d" $i) (dict "folder" (printf "/etc/rls/rules/%s" $name) "from" (dict "configMap" (dict "name" $name))) -}}
{{- end -}}
{{- else if include "rls.readsFiles" . -}}
{{- $name := default (first $own) $v.existingRulesConfigMap -}}
{{- $_ := set $volumes "rules" (dict "folder" "/etc/rls/rules" "from" (dict "configMap" (dict "name" $name))) -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}

{{- define "rls.rulesMounts" -}}
{{- range $volume, $rules := fromYaml (include "rls.rules" .) }}
- {{ dict "name" $volume "mountPath" $rules.folder "readOnly" true | toJson }}
{{- end -}}
{{- end -}}

{{/* "true" if wrong rules are to be skipped, so that they must not stop a pod. */}}
{{- define "rls.skipsWrongRules" -}}
{{- if eq (get (default dict .Values.settings) "CONFIG_ON_ERROR" | toString | lower) "skip" -}}true{{- end -}}
{{- end -}}

{{/* "true" if a CA of one's own is mounted for Redis. */}}
{{- define "rls.redisCA" -}}
{{- if and (eq .Values.backend.type "redis") (or .Values.backend.redis.ca.secret .Values.backend.redis.ca.configMap) -}}true{{- end -}}
{{- end -}}

{{/* The Secrets with passwords and tokens, by the name of the volume that mounts one of them. */}}
{{- define "rls.passwords" -}}
{{- $redis := .Values.backend.redis -}}
{{- $passwords := dict -}}
{{- if and (eq .Values.backend.type "redis") $redis.authSecret.name -}}
{{- $_ := set $passwords "redis-auth" (merge (dict "setting" "REDIS_AUTH_FILE") $redis.authSecret) -}}
{{- end -}}
{{- if and (eq .Values.backend.type "redis") $redis.sentinelAuthSecret.name -}}
{{- $_ := set $passwords "redis-sentinel-auth" (merge (dict "setting" "REDIS_SENTINEL_AUTH_FILE") $redis.sentinelAuthSecret) -}}
{{- end -}}
{{- if .Values.admin.tokenSecret.name -}}
{{- $_ := set $passwords "admin-tokens" (merge (dict "setting" "ADMIN_TOKEN_FILE") .Values.admin.tokenSecret) -}}
{{- end -}}
{{- toYaml $passwords -}}
{{- end -}}

{{/* The Secrets with certificates, by the name of the volume that mounts one of them: their keys
     that are mounted, and the settings that name these. */}}
{{- define "rls.certificates" -}}
{{- $tls := .Values.admin.tls -}}
{{- $certificates := dict -}}
{{- with include "rls.adminTLS" . -}}
{{- $ca := ternary "ca.crt" $tls.ca $tls.certManager.enabled -}}
{{- $settings := dict "ADMIN_USE_TLS" "true" "ADMIN_TLS_CERT" "/etc/rls/admin-tls/tls.crt" "ADMIN_TLS_KEY" "/etc/rls/admin-tls/tls.key" -}}
{{- if $.Values.admin.fleet.enabled -}}
{{- $_ := set $settings "ADMIN_FLEET_TLS_CACERT" (printf "/etc/rls/admin-tls/%s" $ca) -}}
{{- end -}}
{{- $_ := set $certificates "admin-tls" (dict "name" . "keys" (list "tls.crt" "tls.key" $ca | uniq) "settings" $settings) -}}
{{- end -}}
{{- with .Values.grpc.tls.secret -}}
{{- $settings := dict "GRPC_SERVER_USE_TLS" "true" "GRPC_SERVER_TLS_CERT" "/etc/rls/grpc-tls/tls.crt" "GRPC_SERVER_TLS_KEY" "/etc/rls/grpc-tls/tls.key" -}}
{{- $_ := set $certificates "grpc-tls" (dict "name" . "keys" (list "tls.crt" "tls.key") "settings" $settings) -}}
{{- end -}}
{{- toYaml $certificates -}}
{{- end -}}

{{/* The Secret with the certificate of the admin API, "" without TLS. */}}
{{- define "rls.adminTLS" -}}
{{- if .Values.admin.tls.certManager.enabled -}}{{ include "rls.fullname" . }}-admin-tls
{{- else -}}{{ .Values.admin.tls.secret }}
{{- end -}}
{{- end -}}

{{/* "true" if the gRPC port speaks TLS. */}}
{{- define "rls.grpcTLS" -}}
{{- if or .Values.grpc.tls.secret (include "rls.on" (list . "GRPC_SERVER_USE_TLS")) -}}true{{- end -}}
{{- end -}}

{{/* What the containers have in common: image, environment, resources and rights. */}}
{{- define "rls.container" -}}
image: {{ include "rls.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef: {name: {{ include "rls.fullname" . }}-settings}
env:
  # The garbage collector works harder near GOMEMLIMIT, before the kernel kills
  # the process: the limit in MiB with six zeros is 95 % of it in bytes.
  - name: MEMORY_LIMIT_MI
    valueFrom:
      resourceFieldRef: {resource: limits.memory, divisor: 1Mi}
  - {name: GOMEMLIMIT, value: $(MEMORY_LIMIT_MI)000000}
  {{- with .Values.extraEnv }}{{ toYaml . | nindent 2 }}{{ end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{ include "rls.rights" . }}
{{- end -}}

{{/* What no container may do. */}}
{{- define "rls.rights" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The kubelet's gRPC probes speak no TLS. */}}
{{- define "rls.probe" -}}
{{- if include "rls.grpcTLS" . -}}
httpGet: {path: /healthcheck, port: http}
{{- else -}}
grpc: {port: 8081}
{{- end -}}
{{- end -}}

{{/* The gRPC port's appProtocol, by which gateways and meshes choose how to connect. */}}
{{- define "rls.grpc" -}}
{{- if include "rls.grpcTLS" . -}}https{{- else -}}kubernetes.io/h2c{{- end -}}
{{- end -}}

{{/* The alerts of files/alerts.yaml, changed as metrics.prometheusRule.alerts says. */}}
{{- define "rls.alerts" -}}
{{- $v := .Values.metrics.prometheusRule -}}
{{- $file := .Files.Get "files/alerts.yaml" | replace "https://example.org/rls/docs/runbook.md" $v.runbookURL | fromYaml -}}
{{- $rules := list -}}
{{- range $rule := (first $file.groups).rules -}}
{{- $change := default dict (get (default dict $v.alerts) $rule.alert) -}}
{{- if hasKey $change "threshold" -}}
{{- $_ := set $rule "expr" (regexReplaceAll (include "rls.threshold" .) $rule.expr (printf "> %v" $change.threshold)) -}}
{{- end -}}
{{- with $change.for -}}{{- $_ := set $rule "for" . -}}{{- end -}}
{{- with $change.severity -}}{{- $_ := set $rule.labels "severity" . -}}{{- end -}}
{{- if dig "enabled" true $change -}}{{- $rules = append $rules $rule -}}{{- end -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}

{{/* The threshold in the query of an alert. */}}
{{- define "rls.threshold" -}}> [0-9.]+{{- end -}}

{{/* In words, who brings the rules. */}}
{{- define "rls.rulesFrom" -}}
{{- $v := .Values -}}
{{- if not (include "rls.readsFiles" .) -}}a management server
{{- else if or $v.existingRulesConfigMap $v.existingRulesConfigMaps -}}ConfigMaps
{{- else if $v.rulesVolume -}}a volume
{{- else if $v.rules -}}rules
{{- else -}}the quick start
{{- end -}}
{{- end -}}

{{/* For the notes: the Secrets and ConfigMaps without which no pod starts, as a list. */}}
{{- define "rls.needs" -}}
{{- $v := .Values -}}
{{- $needs := list -}}
{{- range $_, $secret := fromYaml (include "rls.passwords" .) -}}
{{- $needs = append $needs (printf "Secret %s with the key %s (%s)" $secret.name $secret.key $secret.setting) -}}
{{- end -}}
{{- if include "rls.redisCA" . -}}
{{- with $v.backend.redis.ca -}}
{{- $needs = append $needs (printf "%s %s with the key %s (REDIS_TLS_CACERT)" (ternary "Secret" "ConfigMap" (not (empty .secret))) (default .configMap .secret) .key) -}}
{{- end -}}
{{- end -}}
{{- range compact (prepend (default list $v.existingRulesConfigMaps) $v.existingRulesConfigMap) -}}
{{- $needs = append $needs (printf "ConfigMap %s with rules" .) -}}
{{- end -}}
{{- range $_, $secret := fromYaml (include "rls.certificates" .) -}}
{{- $names := list -}}
{{- range $setting := keys $secret.settings | sortAlpha -}}
{{- if or (hasSuffix "_CERT" $setting) (hasSuffix "_KEY" $setting) -}}{{- $names = append $names $setting -}}{{- end -}}
{{- end -}}
{{- if not (and $v.admin.tls.certManager.enabled (has "ADMIN_TLS_CERT" $names)) -}}
{{- $needs = append $needs (printf "Secret %s with the keys %s (%s)" $secret.name (join ", " $secret.keys) (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $needs -}}
{{- end -}}

{{/* For the notes: what is not switched on, as a list. */}}
{{- define "rls.missing" -}}
{{- $v := .Values -}}
{{- $missing := list -}}
{{- if eq (include "rls.rulesFrom" .) "the quick start" -}}
{{- $missing = append $missing "Rules of yours: these are the quick start's, for the domain quickstart (rules, existingRulesConfigMaps, rulesVolume)" -}}
{{- end -}}
{{- if eq $v.backend.type "memory" -}}
{{- $missing = append $missing "A store: counters end with the pod, and there can be one replica only (backend.type)" -}}
{{- end -}}
{{- if not $v.admin.tokenSecret.name -}}
{{- $missing = append $missing "The admin API: rls top, rls get and the page are off (admin.tokenSecret)" -}}
{{- end -}}
{{- if and $v.admin.tokenSecret.name (not $v.admin.fleet.enabled) (ne $v.backend.type "memory") -}}
{{- $missing = append $missing "The fleet: each pod answers operators for itself alone (admin.fleet.enabled)" -}}
{{- end -}}
{{- if and $v.admin.fleet.enabled (not (include "rls.adminTLS" .)) -}}
{{- $missing = append $missing "TLS between pods: the tokens of operators cross the network in clear text (admin.tls.secret)" -}}
{{- end -}}
{{- if and $v.admin.fleet.enabled (not $v.networkPolicy.enabled) -}}
{{- $missing = append $missing "A bound of who reaches the admin port: whoever reaches the pods does (networkPolicy.enabled)" -}}
{{- end -}}
{{- if not $v.networkPolicy.enabled -}}
{{- $missing = append $missing "A NetworkPolicy: whoever reaches the pods can charge limits (networkPolicy.enabled)" -}}
{{- else if has (dict "namespaceSelector" dict) $v.networkPolicy.from -}}
{{- $missing = append $missing "Bounds of who may charge limits: every pod of the cluster may (networkPolicy.from)" -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.storeTo) (ne $v.backend.type "memory") -}}
{{- $missing = append $missing "Bounds of where the pods may connect: on the store's ports anywhere (networkPolicy.storeTo)" -}}
{{- end -}}
{{- if not (and $v.metrics.enabled $v.metrics.serviceMonitor.enabled) -}}
{{- $missing = append $missing "Scraping by prometheus-operator (metrics.serviceMonitor.enabled)" -}}
{{- end -}}
{{- if not $v.metrics.prometheusRule.enabled -}}
{{- $missing = append $missing "Alerts (metrics.prometheusRule.enabled)" -}}
{{- end -}}
{{- toYaml $missing -}}
{{- end -}}
