{{- define "rls.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* With room for -headless in the 63 bytes of a name. */}}
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

{{/* The environment: what the other values say, then settings, which win. */}}
{{- define "rls.settings" -}}
{{- $env := dict
  "RUNTIME_ROOT" "/etc/rls" "RUNTIME_APPDIRECTORY" "rules" "RUNTIME_WATCH_ROOT" "false"
  "DEBUG_HOST" "127.0.0.1" "LOG_FORMAT" "json" "LOG_LEVEL" "info"
  "GRPC_MAX_CONNECTION_AGE" "10m" "GRPC_MAX_CONNECTION_AGE_GRACE" "1m"
  "USE_PROMETHEUS" .Values.metrics.enabled
  "DRAIN_PERIOD" (printf "%ds" (int .Values.drainPeriodSeconds))
  "BACKEND_TYPE" .Values.backend.type -}}
{{- if eq .Values.backend.type "redis" -}}
{{- $_ := merge $env (dict "REDIS_SOCKET_TYPE" "tcp" "REDIS_TYPE" .Values.backend.redis.type "REDIS_URL" .Values.backend.redis.url "REDIS_TLS" .Values.backend.redis.tls) -}}
{{- else if eq .Values.backend.type "memory" -}}
{{- /* At most 200 MB of the default resources, however long their values are. */}}
{{- $_ := set $env "MEMORY_MAX_KEYS" 500000 -}}
{{- else if and (eq .Values.backend.type "memcache") .Values.backend.memcache.hosts -}}
{{- $_ := set $env "MEMCACHE_HOST_PORT" .Values.backend.memcache.hosts -}}
{{- end -}}
{{- range $name, $value := merge (deepCopy (default dict .Values.settings)) $env }}
{{- /* Helm takes every number for a float, and prints large ones as 4.194304e+06. */}}
{{- if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value = int64 $value }}{{ end }}{{ end }}
{{ $name }}: {{ toString $value | quote }}
{{- end -}}
{{- end -}}

{{/* "true" if a setting is on: (list . NAME) */}}
{{- define "rls.on" -}}
{{- if has (get (default dict (index . 0).Values.settings) (index . 1) | toString | lower) (list "true" "t" "1") -}}true{{- end -}}
{{- end -}}

{{/* The kubelet's gRPC probes speak no TLS. */}}
{{- define "rls.probe" -}}
{{- if include "rls.on" (list . "GRPC_SERVER_USE_TLS") -}}
httpGet: {path: /healthcheck, port: http}
{{- else -}}
grpc: {port: 8081}
{{- end -}}
{{- end -}}

{{/* What gateways and meshes take the gRPC port for. */}}
{{- define "rls.grpc" -}}
{{- if include "rls.on" (list . "GRPC_SERVER_USE_TLS") -}}https{{- else -}}kubernetes.io/h2c{{- end -}}
{{- end -}}
