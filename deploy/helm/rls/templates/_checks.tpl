{{/* What a schema cannot say, or not why. */}}
{{- define "rls.check" -}}
{{- $v := .Values -}}
{{- $settings := default dict $v.settings -}}
{{- if eq $v.backend.type "memory" -}}
{{- if or $v.autoscaling.enabled (gt (int $v.replicas) 1) -}}
{{- fail "replicas, autoscaling.enabled: with backend.type memory each replica counts for itself: want one, or another backend.type" -}}
{{- end -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas: want at most autoscaling.maxReplicas" -}}
{{- end -}}
{{- if not $v.metrics.enabled -}}
{{- range $what := list "serviceMonitor" "prometheusRule" -}}
{{- if (index $v.metrics $what).enabled -}}
{{- fail (printf "metrics.%s.enabled: want metrics.enabled, too" $what) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.rules $v.existingRulesConfigMap -}}
{{- fail "rules: existingRulesConfigMap is in their place: want one of the two" -}}
{{- end -}}
{{- if and (eq $v.backend.type "memcache") (eq (empty $v.backend.memcache.hosts) (not $settings.MEMCACHE_SRV)) -}}
{{- fail "backend.memcache.hosts: want the servers here, or \"\" and settings.MEMCACHE_SRV" -}}
{{- end -}}
{{- range $label, $_ := fromYaml (include "rls.selector" .) -}}
{{- if hasKey (default dict $v.podLabels) $label -}}
{{- fail (printf "podLabels: %s is how the pods are found" $label) -}}
{{- end -}}
{{- end -}}
{{- if contains "@" (default "" $settings.REDIS_PERSECOND_URL) -}}
{{- fail "settings.REDIS_PERSECOND_URL: a password in it would be read in a ConfigMap: want it in extraEnv as REDIS_PERSECOND_AUTH, from a Secret" -}}
{{- end -}}
{{- $port := "the chart's ports are those of its Services and probes" -}}
{{- $secret := "it would be read in a ConfigMap: want extraEnv, from a Secret" -}}
{{- range $name, $why := dict
  "BACKEND_TYPE" "want backend.type"
  "REDIS_TYPE" "want backend.redis.type"
  "REDIS_URL" "want backend.redis.url"
  "REDIS_TLS" "want backend.redis.tls"
  "REDIS_AUTH" "want backend.redis.authSecret"
  "REDIS_SENTINEL_AUTH" $secret
  "REDIS_PERSECOND_AUTH" $secret
  "REDIS_PERSECOND_SENTINEL_AUTH" $secret
  "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" $secret
  "OTEL_EXPORTER_OTLP_HEADERS" $secret
  "OTEL_EXPORTER_OTLP_TRACES_HEADERS" $secret
  "MEMCACHE_HOST_PORT" "want backend.memcache.hosts"
  "DRAIN_PERIOD" "want drainPeriodSeconds"
  "USE_PROMETHEUS" "want metrics.enabled"
  "PROMETHEUS_ADDR" $port
  "PROMETHEUS_PATH" $port
  "GRPC_PORT" $port
  "PORT" $port
-}}
{{- if hasKey $settings $name -}}
{{- fail (printf "settings.%s: %s" $name $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}
